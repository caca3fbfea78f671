"""The candidates of a step: the complete remedy, and the minimal one if the optimizer has offered it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillopt.record.edits import Patch, Ranked
from skillopt.skill import Applied, Edit, Skill
from skillopt.training.context import Context
from skillopt.training.edits.risk import risk_of
from skillopt.training.edits.select import REVIEW
from skillopt.training.edits.update import update


@dataclass(frozen=True, kw_only=True)
class Candidate:
    name: str
    applied: Applied


def candidates(skill: Skill, ranked: Sequence[Ranked], patches: Sequence[Patch], ctx: Context) -> list[Candidate]:
    """The complete remedy first, which has every selected edit; then the minimal one, if it is another. A person's
    choices are in both.

    Edits are applied in the order in which they were proposed, not by rank: a reader sees rules before examples.
    """
    chosen = sorted((row.edit for row in ranked if row.selected), key=lambda edit: edit.id)
    made = [Candidate(name="complete", applied=update(skill, chosen, ctx))]
    if minimal := minimal_of(patches, skill, ctx):
        by_people = [edit for edit in chosen if edit.source.startswith(REVIEW)]
        made.append(Candidate(name="minimal", applied=update(skill, [*by_people, minimal], ctx)))
    usable = [each for each in made if each.applied.applied] or made[:1]
    return usable if len({each.applied.skill.hash for each in usable}) > 1 else usable[:1]


def minimal_of(patches: Sequence[Patch], skill: Skill, ctx: Context) -> Edit | None:
    """The minimal remedy that cites most failures, among those that need no decision by a person."""
    offered = [p.minimal for p in patches if p.minimal and not risk_of(p.minimal, skill, ctx)]
    return min(offered, key=lambda edit: (-len(edit.trajectory_ids), edit.id), default=None)
