"""The events of a run, for listeners and users' callbacks. Each kind of line in `events.jsonl` has its own type."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import JsonValue, TypeAdapter, field_serializer

from skillopt.record.base import Number, Record
from skillopt.record.files import plain, read_bytes, torn
from skillopt.record.forecast import Check
from skillopt.record.state import Phase
from skillopt.record.step import EpochEnd, Evidence, StepRecord
from skillopt.record.summary import Summary
from skillopt.skill.folder import open_regular

__all__ = [  # the names in skillopt.events
    "Advice",
    "CreditTried",
    "EditsCarried",
    "EndedEarly",
    "EpochFinished",
    "EvaluationFinished",
    "EvaluationStarted",
    "Event",
    "GateDecided",
    "LettersOpened",
    "MetaSkillFinished",
    "Progress",
    "Pulse",
    "ReflectStarted",
    "Reflected",
    "RepliesReused",
    "Retrying",
    "RolloutStarted",
    "RunFinished",
    "RunStarted",
    "RunStopped",
    "Selected",
    "SetAside",
    "SlowUpdateFinished",
    "SlowUpdateStarted",
    "StepFinished",
    "Stopping",
    "Throttled",
    "TrackerFailed",
    "Unmeasured",
]

KINDS: dict[str, type[Event]] = {}
"""The types of events, by kind (such as `gate_decided`)."""
_ROW: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


class Event(Record):
    """The base of all events: the step, the epoch and the time."""

    kind: ClassVar[str] = "event"
    """The name of the event's type in `events.jsonl`, such as `gate_decided`."""
    stored: ClassVar[bool] = True
    """True if the event is written to `events.jsonl`."""
    step: int = 0
    """The number of the step; 0 outside of steps."""
    epoch: int = 0
    time: float = 0.0
    """Seconds since 1970."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        cls.kind = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        KINDS[cls.kind] = cls

    def row(self) -> dict[str, JsonValue]:
        """The event as a line of `events.jsonl`."""
        fields = {name: value for name, value in plain(self).items() if name not in Event.model_fields}
        return {"time": self.time, "kind": self.kind, "step": self.step, "epoch": self.epoch, **fields}


class NearestRun(Record):
    """The earlier run whose settings are most similar to this run's. `settings` has each setting that differs, with the
    earlier run's value and this run's value."""

    run: str
    settings: dict[str, tuple[JsonValue, JsonValue]]


class RunStarted(Event):
    path: str
    """The run's folder."""
    resumed: bool
    finished: bool
    """True if the run was already finished."""
    best_skill: str
    differs: NearestRun | None
    """The earlier run with the most similar settings; None if there is none, or if this run is resumed or begun with
    `--fresh`."""
    done: int
    """The number of steps that were finished before this start of the run."""
    steps: int
    splits: dict[str, int]
    """The number of items in each split."""
    target: str
    optimizer: str
    workers: int
    epochs: int
    learning_rate: Number
    scheduler: str
    """The schedule of the learning rate."""
    scheduler_reason: str = ""
    """The reason why `auto` chose the schedule."""
    phase: Phase | None = None
    """If a finished run is now extended, its new phase; else None."""
    reads_again: bool = False
    """True if the run's test split was already read, and will be read again at the run's end."""


class RepliesReused(Event):
    """A new run reuses the replies that an earlier run has paid for."""

    path: str
    """The earlier run's folder."""
    replies: int


class Advice(Event):
    """Warnings that `skillopt doctor` would also show."""

    checks: tuple[Check, ...]


class EvaluationStarted(Event):
    split: str
    name: str
    """The name of the measurement: `initial`, `best`, `no_skill` or `remeasured`."""
    items: int


class EvaluationFinished(Event):
    split: str
    name: str
    score: float


class Progress(Event):
    """The progress of rollouts. The event is not stored."""

    stored: ClassVar[bool] = False
    stage: str
    done: int
    total: int


class LettersOpened(Event):
    """A handoff has new letters, which wait for replies."""

    numbers: tuple[int, ...]
    folder: str
    waiting: int
    """The number of letters that wait for a reply, including older letters."""


class SetAside(Event):
    """Items are left out for every skill, because they cannot be measured (the endpoint may refuse their content)."""

    items: dict[str, str]
    """The reason, by item."""


class Unmeasured(Event):
    """Items could not be measured, and the run stops."""

    stage: str
    unmeasured: int
    items: int
    error: str
    """The last error."""


class Retrying(Unmeasured):
    """Items could not be measured; they are tried again."""


class RolloutStarted(Event):
    items: int
    workers: int


class ReflectStarted(Event):
    score: float
    """The batch's mean score: the training loss of this step."""
    errors: int
    """The number of rollouts without a score."""


class Reflected(Event):
    patches: int
    edits: int
    lost: int
    """The number of requests without a usable reply."""
    asked_again: int
    leaks: int
    """The number of edits that copy from a training item."""
    deep: tuple[str, ...]
    """Causes that got a deep reflection."""


class Selected(Event):
    edits: int
    rate: float
    conflicts: int
    leaks: int


class GateDecided(Evidence, Event):
    """A gate's decision and its evidence."""


class CreditTried(Evidence, Event):
    """The gate has tried the minimal remedy, or a rejected candidate without some of its edits."""

    edits: int


class EditsCarried(Event):
    """The candidate was rejected, but some of its edits broke nothing; the next step tries them again."""

    edits: int
    pending: int
    """The number of all edits that wait for the next step."""


class StepFinished(Event):
    record: StepRecord
    """The record of the step, as in `history.json`; in `events.jsonl`, the edits are left out."""

    @field_serializer("record")
    def _without_edits(self, record: StepRecord) -> dict[str, JsonValue]:
        return record.model_dump(mode="json", exclude={"applied", "pending"})


class SlowUpdateStarted(Event):
    before: int
    """The skill version at the end of the previous epoch."""
    after: int


class SlowUpdateFinished(Event):
    counts: dict[str, int]
    """The number of items by class: `improved`, `regressed`, `persistent_fail` and `stable_success`."""
    lost: str
    """The reason why there is no guidance; empty if there is guidance."""
    gate: Evidence


class MetaSkillFinished(Event):
    lost: str
    """The reason why there are no new notes; empty if there are new notes."""


class EpochFinished(Event):
    outcome: EpochEnd


class EndedEarly(Event):
    """The run ends early because no further step could help."""

    reason: str
    done: int
    steps: int
    """The number of steps in the plan."""


class Stopping(Event):
    """Ctrl-C was pressed: no new call starts."""

    in_flight: int
    """The number of calls in flight; their replies are paid for and stored."""
    letters: int
    """The number of letters without a reply. The run does not wait for these replies."""


class RunStopped(Event):
    reason: str


class RunFinished(Event):
    summary: Summary
    """The summary of the run, as in `summary.json`."""


class AblationStarted(Event):
    by: str
    units: int
    items: int
    repeats: int
    version: int


class PartMeasured(Event):
    number: int
    units: int
    name: str
    text: str
    worth: float
    """The score with the part minus the score without it."""


class TrackerFailed(Event):
    name: str
    error: str


class ThrottledModel(Record):
    """A model whose endpoint rejects calls because there are too many."""

    model: str
    waiting: int
    """The number of calls that wait."""
    seconds: Number
    """Seconds until the next try."""
    why: str
    turned_away: int
    """The number of calls that were rejected so far."""


class Throttled(ThrottledModel, Event):
    """An endpoint rejects calls because there are too many. The event is not stored."""

    stored: ClassVar[bool] = False


class WaitingLetters(Record):
    waiting: int
    folder: str


class Moment(Record):
    """The current activity of a run."""

    in_flight: dict[str, int]
    """Calls in flight, by role."""
    spent: dict[str, tuple[Number, Number | None]]
    """The minutes, calls, tokens and dollars used so far, each with its limit (None if there is no limit)."""
    letters: WaitingLetters
    throttled: tuple[ThrottledModel, ...]


class Pulse(Moment, Event):
    """The current activity, sent twice per second while a run works. The event is not stored."""

    stored: ClassVar[bool] = False


class StageProgress(Record):
    """The progress of the current stage; empty if unknown."""

    optional: ClassVar = frozenset({"stage", "done", "total"})

    stage: str | None = None
    done: int | None = None
    total: int | None = None


class Live(Moment):
    """live.json, which exists only while a process works on the run."""

    time: float
    """Seconds since 1970."""
    pid: int
    kind: str
    """The kind of the newest event."""
    step: int
    epoch: int
    progress: StageProgress
    retries: int
    """The number of calls that were retried."""


Listener = Callable[[Event], None]


class Events:
    """Appends events to `events.jsonl`, and calls the listeners with each event."""

    def __init__(self, path: Path | None, listeners: tuple[Listener, ...] = ()) -> None:
        self._file = open_regular(path, "a+b") if path else None
        self._listeners = listeners
        if self._file and torn(self._file):
            self._file.write(b"\n")
        self.last: Event | None = None
        """The newest event except `pulse`."""

    def emit(self, event: Event, *, step: int = 0, epoch: int = 0) -> None:
        event = event.model_copy(update={"step": step, "epoch": epoch, "time": round(time.time(), 3)})
        if self._file and event.stored:
            with suppress(OSError):  # a full disk must not stop the run because of its log
                self._file.write(json.dumps(event.row(), ensure_ascii=False).encode() + b"\n")
                self._file.flush()
        if not isinstance(event, Pulse):
            self.last = event
        for listener in self._listeners:
            listener(event)

    @property
    def progress(self) -> StageProgress:
        last = self.last
        if not isinstance(last, Progress):
            return StageProgress()
        return StageProgress(stage=last.stage, done=last.done, total=last.total)

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            with suppress(OSError):
                self._file.close()


EventRow = dict[str, JsonValue]
"""An event as a line of `events.jsonl`: `kind`, and the fields of that kind."""


def parsed(line: bytes) -> EventRow | None:
    """The event in a line of `events.jsonl`; None if the line is not an event."""
    try:
        row = _ROW.validate_json(line)
    except (ValueError, RecursionError):
        return None
    return row if "kind" in row else None


def last_events(path: Path, most: int) -> list[EventRow]:
    """The events within the last `most` bytes of the file."""
    start = max(0, path.stat().st_size - most) if path.exists() else 0
    return [row for _, row in events_after(path, start, most)]


def events_after(path: Path, offset: int, most: int = 512 * 1024) -> Iterator[tuple[int, EventRow]]:
    """The events in complete lines after `offset`, each with the offset of its end. At most `most` bytes are read. If
    the file is now shorter than `offset`, it is read from its start."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            end = offset if offset <= size else 0
            file.seek(end)
            data = file.read(most)
    except OSError:
        return
    *lines, _ = data.split(b"\n")
    for line in lines:
        end += len(line) + 1
        if event := parsed(line):
            yield end, event


def event_page(path: Path, skip: int, count: int, text: str) -> tuple[list[EventRow], int]:
    """Return one page of the events that contain `text`, and the number of all such events. The newest event is first.
    The page begins after `skip` events and has up to `count` events."""
    needle, events, total = text.casefold(), [], 0
    for line in reversed(read_bytes(path).split(b"\n") if path.exists() else []):
        if not line or (needle and needle not in line.decode("utf-8", "replace").casefold()):
            continue
        total += 1
        if skip < total <= skip + count and (event := parsed(line)):
            events.append(event)
    return events, total
