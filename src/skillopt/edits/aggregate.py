"""Aggregate: the proposals of a step become few edits, each idea once; what contradicts itself is flagged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.base import Patch
from skillopt.edits.similarity import opposite_text, other_value, same_text
from skillopt.skill import Edit

CLEAR = 3
"""A side of a conflict that has this many times the other's support is applied; the conflict stays flagged."""


class Pooled(BaseModel):
    """One edit for all that say the same."""

    model_config = ConfigDict(frozen=True)

    edit: Edit
    support: int
    """How many trajectories support it."""
    merged: tuple[str, ...]
    """The ids of the edits that it replaces, its own among them."""


class Conflict(BaseModel):
    """A question for a person: two edits that contradict each other, or one edit that is risky (then `b` is null)."""

    model_config = ConfigDict(frozen=True)

    a: Edit
    b: Edit | None = None
    reason: str
    applied: str = ""
    """`a` or `b` where the evidence was clear enough to try one side at once; else neither is applied."""

    @property
    def sides(self) -> dict[str, Edit]:
        return {"a": self.a, "b": self.b} if self.b else {"a": self.a}

    @property
    def held_back(self) -> int:
        """How many edits wait for a person."""
        return len(self.sides) - bool(self.applied)


class Asked(BaseModel):
    """How a request to the optimizer about the pool went."""

    model_config = ConfigDict(frozen=True)

    stage: str
    lost: str = ""
    """Why there is no usable reply; empty when there is."""
    unusable: tuple[str, ...] = ()
    """What was wrong with replies, or with parts of a reply, that could not be used."""


class Pool(BaseModel):
    """The step's edits, each idea once."""

    model_config = ConfigDict(frozen=True)

    edits: tuple[Pooled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    proposed: int = 0
    asked: tuple[Asked, ...] = ()

    @property
    def merged(self) -> int:
        """How many edits went into another."""
        return sum(len(pooled.merged) - 1 for pooled in self.edits)


def pool_edits(edits: Iterable[Edit]) -> list[Pooled]:
    """Every edit, in id order, merged into the first one with nearly the same text."""
    groups: list[list[Edit]] = []
    for edit in sorted(edits, key=lambda edit: edit.id):
        home = next((group for group in groups if same_edit(group[0], edit)), None)
        if home is None:
            groups.append([edit])
        else:
            home.append(edit)
    return [pool_group(group) for group in groups]


def pool_of(
    pooled: Sequence[Pooled], proposed: int, asked: Sequence[Asked] = (), named: Sequence[Conflict] = ()
) -> Pool:
    """The pool with its contradictions found: those that were named, and those that the words alone show."""
    found = list(named)
    known = {frozenset((c.a.id, c.b.id)) for c in found if c.b}
    for i, a in enumerate(pooled):
        for b in pooled[i + 1 :]:
            reason = contradiction(a.edit, b.edit)
            if reason and frozenset((a.edit.id, b.edit.id)) not in known:
                found.append(Conflict(a=a.edit, b=b.edit, reason=reason))
    support = {p.edit.id: p.support for p in pooled}
    conflicts = tuple(_settled(conflict, support) for conflict in found)
    out = {edit.id for c in conflicts for side, edit in c.sides.items() if side != c.applied}
    kept = tuple(p for p in pooled if p.edit.id not in out)
    return Pool(edits=kept, conflicts=conflicts, proposed=proposed, asked=tuple(asked))


def aggregate_locally(patches: Sequence[Patch]) -> Pool:
    """Without an optimizer: only nearly identical texts are merged."""
    edits = [edit for patch in patches for edit in patch.edits]
    return pool_of(pool_edits(edits), len(edits))


def pool_group(group: Sequence[Edit]) -> Pooled:
    """The first edit in place of all; trajectories add up."""
    cited = tuple(sorted({tid for edit in group for tid in edit.trajectory_ids}))
    edit = group[0].model_copy(update={"trajectory_ids": cited})
    return Pooled(edit=edit, support=len(cited), merged=tuple(edit.id for edit in group))


def same_edit(a: Edit, b: Edit) -> bool:
    """Do two edits ask for the same, of the same text, in nearly the same words?"""
    return a.op == b.op and a.file == b.file and a.anchor == b.anchor and same_text(a.text, b.text)


def contradiction(a: Edit, b: Edit) -> str:
    """Why two edits cannot both hold, where the words alone show it; empty where they do not."""
    if a.anchor != b.anchor or (a.anchor and a.file != b.file):
        return ""
    if {a.op, b.op} == {"delete", "modify"}:
        return "one deletes the text that the other changes"
    if a.op != b.op or a.op == "delete":
        return ""
    if opposite_text(a.text, b.text):
        return "they ask for opposite things"
    return "they give different values for one rule" if other_value(a.text, b.text) else ""


def _settled(conflict: Conflict, support: dict[str, int]) -> Conflict:
    if conflict.b is None:
        return conflict
    a, b = support.get(conflict.a.id, 0), support.get(conflict.b.id, 0)
    side = "a" if a >= CLEAR * b else "b" if b >= CLEAR * a else ""
    return conflict.model_copy(update={"applied": side}) if side and max(a, b) else conflict
