"""Aggregate: edits that say the same become one with their support added up; opposite ones are set aside."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.base import Patch
from skillopt.skill import Edit

_HARMLESS = {"a", "an", "the", "please", "also", "just", "very", "really", "so", "then", "that", "which"}
"""Words whose presence does not change what an instruction asks for."""
_NEGATION_WORDS = """
not no never none nor neither without avoid don't dont doesn't isn't aren't cannot can't cant won't shouldn't mustn't
refuse stop unless except
"""
_NEGATIONS = set(_NEGATION_WORDS.split())
_WORD = re.compile(
    r"`[^`\n]*[^\w\s`][^`\n]*`"  # code with more than words in it, as it stands
    r"|(?<![^\W_])[-−+.]+(?=\d)"  # a number's sign
    r"|[^\W_]+(?:(?:[-–'’./:_]|(?<=\d),(?=\d))[^\W_]+)*(?:\+\+|\#)?"  # words, names (C++, a_b) and numbers (1,5)
    r"|!=|[^\w\s.,;:!?'\"‘’“”„(){}\[\]*`#\-–—…_]"  # signs that carry meaning: < % $ & …
)


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
    pooled = [_pool(group) for group in groups]
    conflicts = tuple(
        Conflict(a=a.edit, b=b.edit, reason="one negates the other")
        for i, a in enumerate(pooled)
        for b in pooled[i + 1 :]
        if opposite(a.edit, b.edit)
    )
    clashing = {edit.id for conflict in conflicts for edit in (conflict.a, conflict.b)}
    kept = tuple(p for p in pooled if p.edit.id not in clashing)
    return Pool(edits=kept, conflicts=conflicts, proposed=len(edits))


def _pool(group: list[Edit]) -> Pooled:
    cited = tuple(sorted({tid for edit in group for tid in edit.trajectory_ids}))
    strongest = max(edit.impact for edit in group)
    edit = group[0].model_copy(update={"trajectory_ids": cited, "impact": strongest})
    return Pooled(edit=edit, support=len(cited), merged=tuple(edit.id for edit in group))


def same_edit(a: Edit, b: Edit) -> bool:
    """Do two edits say the same? Only what cannot change the meaning may differ: case, punctuation, filler words.

    So edits that differ in a number, a name or a negation are never the same, however alike they look.
    """
    if a.op != b.op or a.anchor != b.anchor:
        return False
    return essence(a.text) == essence(b.text)


def opposite(a: Edit, b: Edit) -> bool:
    """The same instruction, once with and once without a negation."""
    if "delete" in (a.op, b.op) or a.anchor != b.anchor:
        return False
    left, right = essence(a.text), essence(b.text)
    bare_left, bare_right = (tuple(w for w in side if w not in _NEGATIONS) for side in (left, right))
    odd = (len(left) - len(bare_left)) % 2 != (len(right) - len(bare_right)) % 2
    return bool(bare_left) and odd and _without_do(bare_left) == _without_do(bare_right)


def essence(text: str) -> tuple[str, ...]:
    """The words that carry the meaning, in order."""
    words = [w if w[0] == "`" else w.casefold().replace("’", "'") for w in _WORD.findall(text)]
    return tuple(word for word in words if word not in _HARMLESS)


def _without_do(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in {"do", "always", "should", "must"})
