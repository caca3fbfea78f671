"""Aggregate: the proposals of a step become few edits, each idea once; what contradicts itself is flagged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skillopt.record.edits import Asked, Conflict, EditPool, Pooled
from skillopt.skill import Edit
from skillopt.training.edits.similarity import opposite_text, other_value, same_text

CLEAR = 3
"""A side of a conflict that has this many times the other's support is applied; the conflict stays flagged."""


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
) -> EditPool:
    """The pool with its contradictions found: those that were named, and those that the words alone show."""
    conflicting = list(named)
    named_pairs = {frozenset((c.a.id, c.b.id)) for c in conflicting if c.b}
    for i, a in enumerate(pooled):
        for b in pooled[i + 1 :]:
            reason = contradiction(a.edit, b.edit)
            if reason and frozenset((a.edit.id, b.edit.id)) not in named_pairs:
                conflicting.append(Conflict(a=a.edit, b=b.edit, reason=reason))
    support = {p.edit.id: p.support for p in pooled}
    conflicts = tuple(_settled(conflict, support) for conflict in conflicting)
    out = {edit.id for c in conflicts for side, edit in c.sides.items() if side != c.applied}
    kept = tuple(p for p in pooled if p.edit.id not in out)
    return EditPool(edits=kept, conflicts=conflicts, proposed=proposed, asked=tuple(asked))


def pool_group(group: Sequence[Edit]) -> Pooled:
    """The first edit in place of all; trajectories add up."""
    cited = tuple(sorted({tid for edit in group for tid in edit.trajectory_ids}))
    edit = group[0].model_copy(update={"trajectory_ids": cited})
    return Pooled(edit=edit, support=len(cited), merged=tuple(edit.id for edit in group))


def same_edit(a: Edit, b: Edit) -> bool:
    """Do two edits ask for the same, of the same text, in nearly the same words?"""
    return a.op == b.op and a.file == b.file and a.anchor == b.anchor and same_text(a.text, b.text)


def contradiction(a: Edit, b: Edit) -> str:
    """Why two edits contradict each other, as far as the words alone show it; else empty."""
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
