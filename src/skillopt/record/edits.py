"""The edits of a step at each stage, as in patches.json, aggregate.json, selected.json and the review files."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import JsonValue

from skillopt.record.base import Record
from skillopt.record.findings import ReportedFinding
from skillopt.skill import Edit, Skip

Choice = Literal["a", "b", "both", "neither", "own"]


class Pattern(Record):
    """A cause of failure, and the trajectories that show it."""

    name: str
    cause: str = ""
    trajectory_ids: tuple[str, ...] = ()


class Dropped(Record):
    """An edit that could not be used as it was, and why."""

    kind: str
    reason: str
    edit: dict[str, JsonValue]


class Leak(Record):
    """An edit that copies from a training item."""

    edit_id: str
    item_id: str
    copied: str
    """The longest run of words that both share."""


class Patch(Record):
    """One analyst's edits from one minibatch."""

    optional: ClassVar = frozenset({"minimal"})

    id: str
    source: str
    """Analyst and kind, such as `llm/mixed`."""
    trajectory_ids: tuple[str, ...]
    patterns: tuple[Pattern, ...] = ()
    edits: tuple[Edit, ...] = ()
    minimal: tuple[Edit, ...] | None = None
    """Wordings of the minimal remedy, one or two sentences on what is missing. The best one is tried against all edits
    together."""
    findings: tuple[ReportedFinding, ...] = ()
    """The analyst's findings, for later steps."""
    dropped: tuple[Dropped, ...] = ()
    lost: str = ""
    """Why there is no usable reply; empty when there is."""
    unreachable: bool = False
    unusable: tuple[str, ...] = ()
    """What was wrong with each unusable reply, even if asking again helped."""
    leaks: tuple[Leak, ...] = ()
    """Edits that copy long strings from training items."""


class Pooled(Record):
    """One edit for all that say the same."""

    edit: Edit
    support: int
    """How many trajectories support it."""
    merged: tuple[str, ...]
    """The ids of the edits that it replaces, including its own."""


class Conflict(Record):
    """A question for a person: two edits that contradict each other, or one edit that is risky (then `b` is null)."""

    a: Edit
    b: Edit | None = None
    reason: str
    applied: str = ""
    """`a` or `b` if the evidence was clear enough to try that side at once; else neither is applied."""

    @property
    def sides(self) -> dict[str, Edit]:
        return {"a": self.a, "b": self.b} if self.b else {"a": self.a}

    @property
    def held_back(self) -> int:
        """How many edits wait for a person."""
        return len(self.sides) - bool(self.applied)


class FiledConflict(Conflict):
    """A conflict as a line of `review/conflicts.jsonl`."""

    id: str
    """Step and number, such as `3-1`."""
    step: int


class Asked(Record):
    """The outcome of a merge request to the optimizer."""

    stage: str
    lost: str = ""
    """Why there is no usable reply; empty when there is."""
    unusable: tuple[str, ...] = ()
    """What was wrong with replies, or with parts of a reply, that could not be used."""


class EditPool(Record):
    """The step's edits, each idea once."""

    edits: tuple[Pooled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    proposed: int = 0
    asked: tuple[Asked, ...] = ()

    @property
    def merged(self) -> int:
        """How many edits were merged into another edit."""
        return sum(len(pooled.merged) - 1 for pooled in self.edits)


class Relevance(Record):
    """Why an edit has its rank."""

    new_failures: int
    """Failures it covers that no edit before it covers."""
    support: int
    """Failures it covers in all."""
    new_cause: bool
    """No edit before it answers the same cause."""


class Ranked(Record):
    """An edit's rank, and why it is in or out."""

    edit: Edit
    support: int
    relevance: float
    parts: Relevance | None = None
    selected: bool
    reason: str
    leak: str = ""
    """The text that it copies from a training item; empty if there is none."""


class Selection(Record):
    """selected.json: every edit of the pool in the order of selection, and those that could not be applied."""

    ranked: tuple[Ranked, ...]
    skipped: tuple[Skip, ...]


class Decision(Record):
    """A line of `review/decisions.jsonl`; the last one on a conflict counts."""

    conflict: str
    choice: Choice
    text: str = ""
    """The person's own text, if that is the choice."""
