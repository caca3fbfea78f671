"""Which runs are being worked on: those whose lock a process holds, wherever it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from skillopt.keys import no_secrets

_LOCKS = Path("/proc/locks")


def holders(locks: Mapping[str, os.stat_result]) -> dict[str, int]:
    """Of lock files by path those that a trainer holds, and its process. Taking a lock to see would get in its way."""
    if _LOCKS.exists():
        held = _held_files()
        keys = {path: (known.st_dev, known.st_ino) for path, known in locks.items()}
        return {path: held[key] for path, key in keys.items() if held.get(key, 0) > 0}
    return {path: pid for path in locks if (pid := _written_pid(path)) and _is_ours(pid)}


def holder(run: Path) -> int | None:
    """The process at work on a run."""
    lock = str(run / "run.lock")
    try:
        return holders({lock: os.stat(lock)}).get(lock)  # noqa: PTH116
    except OSError:
        return None


def _held_files() -> dict[tuple[int, int], int]:
    """`1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF` for every lock on this machine."""
    held = {}
    for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
        parts = line.split()
        if "FLOCK" in parts and "->" not in parts:
            major, minor, inode = parts[5].split(":")
            held[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(parts[4])
    return held


def _written_pid(lock: str) -> int | None:
    try:
        return int(Path(lock).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_ours(pid: int) -> bool:
    """Where locks cannot be listed: the process that wrote its number lives, and is a trainer."""
    command = ["ps", "-o", "command=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=no_secrets())  # noqa: S603
    return "skillopt" in found.stdout or Path(sys.executable).name in found.stdout
