"""What happens in a run, as it happens: one line of JSON an event, and whoever listens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillopt.run.files import plain


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: str
    """Such as run_started, rollout_started, gate_decided; docs/architecture.md lists them."""
    step: int = 0
    epoch: int = 0
    data: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]


class Events:
    """Appends to `events.jsonl` and tells the listeners. `progress` is told but not stored."""

    def __init__(self, path: Path | None, listeners: tuple[Listener, ...] = ()) -> None:
        self._file = path.open("a", encoding="utf-8") if path else None
        self._listeners = listeners
        self.last: Event | None = None
        """The newest event, whatever its kind."""
        self.progress: dict[str, Any] = {}
        """How far the work under way is: stage, done, total."""

    def emit(self, kind: str, *, step: int = 0, epoch: int = 0, **data: Any) -> None:
        event = Event(kind=kind, step=step, epoch=epoch, data=data)
        if self._file and kind != "progress":
            row = {"time": round(time.time(), 3), "kind": kind, "step": step, "epoch": epoch, **plain(data)}
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()
        self.progress = data if kind == "progress" else {}
        self.last = event
        for listener in self._listeners:
            listener(event)

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            self._file.close()
