"""Aggregate: edits that say the same become one with their support added up; opposite ones are set aside."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.base import Patch
from skillopt.edits.similarity import opposite_meaning, same_meaning
from skillopt.skill import Edit


class Pooled(BaseModel):
    """One edit that stands for all that say the same."""

    model_config = ConfigDict(frozen=True)

    edit: Edit
    support: int
    """How many trajectories speak for it."""
    merged: tuple[str, ...]
    """The ids of the edits that it stands for, its own included."""


class Conflict(BaseModel):
    """Two edits that push the same rule in opposite directions: neither is applied, a person may choose."""

    model_config = ConfigDict(frozen=True)

    a: Edit
    b: Edit
    reason: str

    @property
    def edits(self) -> int:
        """How many edits it holds back: of a risky one (policy.py) the other side is to leave it out."""
        return 2 if self.b.text or self.b.op == "delete" else 1


class Pool(BaseModel):
    """The step's edits, each once."""

    model_config = ConfigDict(frozen=True)

    edits: tuple[Pooled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    proposed: int = 0

    @property
    def merged(self) -> int:
        """How many edits went into another."""
        return sum(len(pooled.merged) - 1 for pooled in self.edits)


def aggregate(patches: Sequence[Patch]) -> Pool:
    """Merge, in id order, every edit into the first that says the same; then find opposites."""
    edits = sorted((edit for patch in patches for edit in patch.edits), key=lambda edit: edit.id)
    groups: list[list[Edit]] = []
    for edit in edits:
        home = next((group for group in groups if same_edit(group[0], edit)), None)
        if home is None:
            groups.append([edit])
        else:
            home.append(edit)
    pooled = [pool_group(group) for group in groups]
    conflicts = tuple(
        Conflict(a=a.edit, b=b.edit, reason="they ask for opposite things")
        for i, a in enumerate(pooled)
        for b in pooled[i + 1 :]
        if opposite(a.edit, b.edit)
    )
    clashing = {edit.id for conflict in conflicts for edit in (conflict.a, conflict.b)}
    kept = tuple(p for p in pooled if p.edit.id not in clashing)
    return Pool(edits=kept, conflicts=conflicts, proposed=len(edits))


def pool_group(group: Sequence[Edit]) -> Pooled:
    """The first edit stands for the others; trajectories add up, the strongest expectation holds."""
    cited = tuple(sorted({tid for edit in group for tid in edit.trajectory_ids}))
    strongest = max(edit.impact for edit in group)
    edit = group[0].model_copy(update={"trajectory_ids": cited, "impact": strongest})
    return Pooled(edit=edit, support=len(cited), merged=tuple(edit.id for edit in group))


def same_edit(a: Edit, b: Edit) -> bool:
    """Do two edits ask for the same? They may be worded differently, but say so of the same text.

    Edits that differ in a number, a name, a negation or the order of things never are, however alike they look.
    """
    if a.op != b.op or a.anchor != b.anchor:
        return False
    return same_meaning(a.text, b.text)


def opposite(a: Edit, b: Edit) -> bool:
    """The same instruction once with and once without a negation, or turned into its opposite."""
    if "delete" in (a.op, b.op) or a.anchor != b.anchor:
        return False
    return opposite_meaning(a.text, b.text)
