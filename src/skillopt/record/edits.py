"""Records of a step's edits at each stage: patches.json, aggregate.json, selected.json and the review files."""

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
    """An unusable edit of a reply, and the reason why it is unusable."""

    kind: str
    reason: str
    edit: dict[str, JsonValue]


class Leak(Record):
    """An edit that copies from a training item."""

    edit_id: str
    item_id: str
    copied: str
    """The longest sequence of words that the edit shares with the item."""


class Patch(Record):
    """The edits that one analyst proposes for one minibatch."""

    optional: ClassVar = frozenset({"minimal"})

    id: str
    source: str
    """The analyst and the kind of minibatch, such as `llm/mixed`."""
    trajectory_ids: tuple[str, ...]
    patterns: tuple[Pattern, ...] = ()
    edits: tuple[Edit, ...] = ()
    minimal: tuple[Edit, ...] | None = None
    """Wordings of the minimal remedy: one or two sentences that say what the skill lacks. The gate compares the best
    wording with all edits together."""
    findings: tuple[ReportedFinding, ...] = ()
    """The analyst's findings, for later steps."""
    dropped: tuple[Dropped, ...] = ()
    lost: str = ""
    """The reason why there is no usable reply; empty if there is a usable reply."""
    unreachable: bool = False
    unusable: tuple[str, ...] = ()
    """The problems of unusable replies. They are recorded even if another try gave a usable reply."""
    leaks: tuple[Leak, ...] = ()
    """Edits that copy long strings from training items."""


class Pooled(Record):
    """One edit that replaces all edits that say the same."""

    edit: Edit
    support: int
    """The number of trajectories that the edit cites."""
    merged: tuple[str, ...]
    """The ids of the edits that were merged into this edit, and this edit's own id."""


class Conflict(Record):
    """A question for a person: two edits that contradict each other, or one edit that is risky (then `b` is null)."""

    a: Edit
    b: Edit | None = None
    reason: str
    applied: str = ""
    """The side (`a` or `b`) that is applied at once because its evidence is clear; empty if neither is applied."""

    @property
    def sides(self) -> dict[str, Edit]:
        return {"a": self.a, "b": self.b} if self.b else {"a": self.a}

    @property
    def held_back(self) -> int:
        """The number of edits that wait for a person."""
        return len(self.sides) - bool(self.applied)


class FiledConflict(Conflict):
    """A conflict as a line of `review/conflicts.jsonl`."""

    id: str
    """The step and the number of the conflict, such as `3-1`."""
    step: int


class Asked(Record):
    """The outcome of one request that asked the optimizer to merge edits."""

    stage: str
    lost: str = ""
    """The reason why there is no usable reply; empty if there is a usable reply."""
    unusable: tuple[str, ...] = ()
    """The problems of unusable replies, or of unusable parts of a reply."""


class EditPool(Record):
    """The edits of a step. Edits that say the same are merged."""

    edits: tuple[Pooled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    proposed: int = 0
    asked: tuple[Asked, ...] = ()

    @property
    def merged(self) -> int:
        """The number of edits that were merged into another edit."""
        return sum(len(pooled.merged) - 1 for pooled in self.edits)


class Relevance(Record):
    """The figures that decide an edit's rank."""

    new_failures: int
    """The number of failures that this edit covers, but that no better-ranked edit covers."""
    support: int
    """The number of all failures that this edit covers."""
    new_cause: bool
    """True if no better-ranked edit is about the same cause."""


class Ranked(Record):
    """An edit with its relevance, and the reason why it was or was not selected."""

    edit: Edit
    support: int
    relevance: float
    parts: Relevance | None = None
    selected: bool
    reason: str
    leak: str = ""
    """The text that the edit copies from a training item; empty if it copies none."""


class Selection(Record):
    """selected.json: every edit of the pool in the order of selection, and the edits that could not be applied."""

    ranked: tuple[Ranked, ...]
    skipped: tuple[Skip, ...]


class Decision(Record):
    """A person's decision on a conflict: a line of `review/decisions.jsonl`. The last decision on a conflict is
    used."""

    conflict: str
    choice: Choice
    text: str = ""
    """The person's own text, if the choice is `own`."""
