"""What happens in a run, as it happens: one line of JSON for each event, and the listeners."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillopt.run.files import plain, torn


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: str
    """Such as run_started, rollout_started, gate_decided; docs/architecture.md lists them."""
    step: int = 0
    epoch: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    time: float = 0.0
    """Seconds since 1970."""

    def row(self) -> dict[str, Any]:
        """As it is in `events.jsonl`."""
        return {"time": self.time, "kind": self.kind, "step": self.step, "epoch": self.epoch, **plain(self.data)}


Listener = Callable[[Event], None]


FLEETING = frozenset({"progress", "pulse", "throttled"})
"""Events that are sent to listeners but not stored."""


class Events:
    """Appends to `events.jsonl` and calls the listeners."""

    def __init__(self, path: Path | None, listeners: tuple[Listener, ...] = ()) -> None:
        self._file = path.open("a", encoding="utf-8") if path else None
        self._listeners = listeners
        if self._file and path and torn(path):
            self._file.write("\n")
        self.last: Event | None = None
        """The newest event but the pulse."""
        self.progress: dict[str, Any] = {}
        """How far the work under way is: stage, done, total."""

    def emit(self, kind: str, *, step: int = 0, epoch: int = 0, **data: Any) -> None:
        event = Event(kind=kind, step=step, epoch=epoch, data=data, time=round(time.time(), 3))
        if self._file and kind not in FLEETING:
            with suppress(OSError):  # a full disk stops the run where results are written, not for its log
                self._file.write(json.dumps(event.row(), ensure_ascii=False) + "\n")
                self._file.flush()
        if kind != "pulse":
            self.progress, self.last = data if kind == "progress" else {}, event
        for listener in self._listeners:
            listener(event)

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            with suppress(OSError):
                self._file.close()


def parsed(line: bytes) -> dict[str, Any] | None:
    """A line of `events.jsonl`; None where it is no event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def last_events(path: Path, most: int) -> list[dict[str, Any]]:
    """The events within the last `most` bytes of the file; none where there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return [event for line in (lines[1:] if size > most else lines) if (event := parsed(line))]
