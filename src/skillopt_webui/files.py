"""Reading files while a trainer writes them: parsed once for each state of a file."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from threading import Lock
from typing import TypeVar, cast

from skillopt.errors import SkillOptError
from skillopt.record.directory import ALTERED
from skillopt.record.run import Run
from skillopt.record.summary import Summary
from skillopt.view.billed import current_summary

T = TypeVar("T")
Signature = tuple[int, int, int]


def stat(path: Path | str) -> os.stat_result | None:
    """None if it is not a regular file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if S_ISREG(status.st_mode) else None


class Cache:
    """What was made of a file, for as long as the file stays as it is; the least used goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[tuple[str, str], tuple[Signature, object]] = OrderedDict()
        self._lock = Lock()

    def get(self, what: str, path: Path | str, make: Callable[[], T], status: os.stat_result | None = None) -> T | None:
        """What `make` makes of the file; None if there is none, or if it cannot be read."""
        now = status or stat(path)
        if now is None:
            return None
        key, signature = (what, str(path)), (now.st_mtime_ns, now.st_size, now.st_ino)
        with self._lock:
            cached = self._values.get(key)
            if cached and cached[0] == signature:
                self._values.move_to_end(key)
                return cast(T, cached[1])
        value = readable(make)
        if value is not None:
            with self._lock:
                self._values[key] = (signature, value)
                while len(self._values) > self._most:
                    self._values.popitem(last=False)
        return value


def readable(make: Callable[[], T]) -> T | None:
    """None if a file is missing or not as it was written."""
    try:
        return make()
    except (OSError, SkillOptError, *ALTERED):
        return None


def read_summary(run: Run, cache: Cache) -> Summary | None:
    """With the costs of this moment if the run is not finished; None if there is no summary, or if it is damaged."""
    files = run.files
    summary = cache.get("summary", files.summary, lambda: run.summary)
    if not summary or summary.status == "finished":
        return summary
    newest = next((path for path in (f"{files.journal}-wal", files.journal) if stat(path)), files.journal)
    return cache.get(f"billed after {summary.seconds} s", newest, lambda: current_summary(run)) or summary
