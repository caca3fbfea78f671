"""Reading a run's files while a trainer writes them: parsed once for each state of a file."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

Signature = tuple[int, int, int]


def stat(path: Path | str) -> os.stat_result | None:
    """None where there is no file."""
    try:
        return os.stat(path)  # noqa: PTH116 - thousands of times in a listing
    except OSError:
        return None


class Cache:
    """What was made of a file, for as long as the file stays as it is; the least used goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], tuple[Signature, Any]] = OrderedDict()
        self._lock = Lock()

    def get(self, what: str, path: Path | str, make: Callable[[Path], Any], known: os.stat_result | None = None) -> Any:
        """What `make` makes of the file; None where there is none, or where it cannot be read."""
        now = known or stat(path)
        if now is None:
            return None
        key, mark = (what, str(path)), (now.st_mtime_ns, now.st_size, now.st_ino)
        with self._lock:
            kept = self._known.get(key)
            if kept and kept[0] == mark:
                self._known.move_to_end(key)
                return kept[1]
        try:
            value = make(Path(path))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        with self._lock:
            self._known[key] = (mark, value)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return value
