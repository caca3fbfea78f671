"""Which runs are being worked on: those whose lock a process holds, wherever it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_LOCKS = Path("/proc/locks")


def holders(runs: Iterable[Path]) -> dict[Path, int]:
    """Run folders with a trainer at work, and its process. Taking the lock to see would get in a trainer's way."""
    if _LOCKS.exists():
        held = _held_files()
        return {run: pid for run in runs if (key := _file_key(run / "run.lock")) in held and (pid := held[key]) > 0}
    return {run: pid for run in runs if (pid := _written_pid(run)) and _is_ours(pid)}


def holder(run: Path) -> int | None:
    return holders([run]).get(run)


def _held_files() -> dict[tuple[int, int], int]:
    """`1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF` for every lock on this machine."""
    held = {}
    for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
        parts = line.split()
        if "FLOCK" in parts and "->" not in parts:
            major, minor, inode = parts[5].split(":")
            held[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(parts[4])
    return held


def _file_key(path: Path) -> tuple[int, int] | None:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_dev, known.st_ino


def _written_pid(run: Path) -> int | None:
    try:
        return int((run / "run.lock").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_ours(pid: int) -> bool:
    """Where locks cannot be listed: the process that wrote its number lives, and is a trainer."""
    command = ["ps", "-o", "command=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return "skillopt" in found.stdout or Path(sys.executable).name in found.stdout
