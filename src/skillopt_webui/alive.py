"""Finds the runs that a process is working on. The process holds the lock of the run, no matter whether the page or a
terminal started it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from skillopt.record.directory import RunDirectory

_LOCKS = Path("/proc/locks")


def holders(locks: Mapping[str, os.stat_result]) -> dict[str, int]:
    """Return the number of the process that holds each lock file; free lock files are left out. If possible, read
    /proc/locks instead of trying the locks, because a try could disturb the holder."""
    if _LOCKS.exists():
        held = _held_files()
        keys = {path: (known.st_dev, known.st_ino) for path, known in locks.items()}
        return {path: held[key] for path, key in keys.items() if held.get(key, 0) > 0}
    return {path: pid for path in locks if (pid := _written_pid(path))}


def holder(run: Path) -> int | None:
    """The number of the process that works on a run; None if there is none. A lock file that is a link is ignored: the
    link could lead to another program's lock, and the page would then stop that program."""
    lock = str(run / "run.lock")
    try:
        known = os.lstat(lock)
        return holders({lock: known}).get(lock) if known.st_nlink == 1 else None
    except OSError:
        return None


def _held_files() -> dict[tuple[int, int], int]:
    """The process that holds each locked file, read from /proc/locks. A line looks like `1: FLOCK ADVISORY WRITE 1234
    08:01:5678 0 EOF`."""
    held = {}
    for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
        parts = line.split()
        if "FLOCK" in parts and "->" not in parts:
            major, minor, inode = parts[5].split(":")
            held[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(parts[4])
    return held


def _written_pid(lock: str) -> int:
    """The process number that the holder of the lock wrote into it; 0 if the lock is free."""
    try:
        return int(Path(lock).read_text().split()[0]) if RunDirectory(Path(lock).parent).busy() else 0
    except (OSError, ValueError, IndexError):
        return 0
