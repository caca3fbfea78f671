"""Reads files that a training may write at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

from skillopt.errors import SkillOptError
from skillopt.record.directory import ALTERED

T = TypeVar("T")
Stamp = tuple[int, int, int]
"""The time of change, the size and the inode of a file. At least one of them changes when the file changes."""


def stat(path: Path | str) -> os.stat_result | None:
    """The status of a file; None if it is not a regular file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if S_ISREG(status.st_mode) else None


def stamp(path: Path | str) -> Stamp | None:
    status = stat(path)
    return status and (status.st_mtime_ns, status.st_size, status.st_ino)


def readable(make: Callable[[], T]) -> T | None:
    """Call `make` and return its result; None if a file that it reads is missing or damaged."""
    try:
        return make()
    except (OSError, SkillOptError, *ALTERED):
        return None
