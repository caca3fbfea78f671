"""What happens in a training, as typed events for callbacks.

    trainer = skillopt.Trainer("configs/sim/default.yaml")

    @trainer.on(skillopt.events.GateDecided)
    def show(event):
        print(event.step, event.decision, event.before, event.after)

The same events are in a run's `events.jsonl`. Later versions may add fields; none is removed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, dataclass_transform

from skillopt.run.events import Event as Raw

KINDS: dict[str, type[Event]] = {}
"""The type of each kind, such as `gate_decided`; a kind without one is a plain Event."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """Any event: its kind, where in the run it happened, and everything that is known of it."""

    kind: str
    step: int = 0
    """0 outside of steps."""
    epoch: int = 0
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """All fields, including those that are not attributes."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        KINDS[re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()] = cls


class RunStarted(Event):
    path: str
    """The run's folder."""
    resumed: bool
    done: int
    """Steps that were finished before."""
    steps: int
    splits: Mapping[str, int]
    """Items in each split."""
    target: str
    optimizer: str


class EvaluationStarted(Event):
    split: str
    name: str
    """Which skill: initial, best, no_skill, remeasured."""
    items: int


class EvaluationFinished(Event):
    split: str
    name: str
    score: float


class Progress(Event):
    """Sent while rollouts run; not stored."""

    stage: str
    done: int
    total: int


class LettersOpened(Event):
    """The optimizer is a handoff, and waits for replies."""

    numbers: Sequence[int]
    """The new letters."""
    folder: str
    waiting: int
    """How many letters are waited for in all."""


class RolloutStarted(Event):
    items: int


class ReflectStarted(Event):
    score: float
    """The batch's mean score: the training loss of this step."""
    errors: int
    """Rollouts without a score."""


class Reflected(Event):
    patches: int
    edits: int
    lost: int
    """Replies that could not be used."""


class Selected(Event):
    edits: int
    rate: float
    conflicts: int


class Raced(Event):
    candidates: Sequence[Mapping[str, Any]]
    """Name, edits, items and score of each, the winner first."""


class GateDecided(Event):
    decision: str
    """accept, reject, indecisive or skipped."""
    before: float
    after: float | None
    """None where the gate stopped before the candidate's score was known."""
    reason: str
    measured: int
    items: int


class StepFinished(Event):
    record: Mapping[str, Any]
    """The step's record, as in `history.json`."""


class SlowUpdateFinished(Event):
    counts: Mapping[str, int]
    gate: Mapping[str, Any]


class MetaSkillFinished(Event):
    lost: str
    """Why there are no new notes; empty where there are."""


class EpochFinished(Event):
    outcome: Mapping[str, Any]


class RunStopped(Event):
    reason: str


class RunFinished(Event):
    summary: Mapping[str, Any]
    """As `summary.json` has it."""


def typed(raw: Raw) -> Event:
    """An event of the loop in its type."""
    known: dict[str, Any] = {"kind": raw.kind, "step": raw.step, "epoch": raw.epoch, "data": raw.data}
    kind = KINDS.get(raw.kind, Event)
    own = {field.name for field in dataclasses.fields(kind)} - known.keys()
    return kind(**known, **{name: raw.data[name] for name in own})
