"""Reading a run's files while a trainer writes them: parsed once for each state of a file."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

Signature = tuple[int, int, int]


def signature(path: Path) -> Signature | None:
    """Changes whenever the file does; None where there is no file."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino


class Cache:
    """What was made of a file, for as long as the file stays as it is; the least used goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, Path], tuple[Signature, Any]] = OrderedDict()
        self._lock = Lock()

    def get(self, what: str, path: Path, make: Callable[[Path], Any]) -> Any:
        """None where there is no file, or where it cannot be read."""
        now = signature(path)
        if now is None:
            return None
        with self._lock:
            known = self._known.get((what, path))
            if known and known[0] == now:
                self._known.move_to_end((what, path))
                return known[1]
        try:
            value = make(path)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        with self._lock:
            self._known[what, path] = (now, value)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return value


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())
