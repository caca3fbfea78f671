"""The candidates of a step: the same proposals, put together in several ways.

How a rule is put matters more to a target than what it says, and nobody can tell in advance. The race in
gates/heats.py finds the best of them on a few items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skillopt.core.context import Context
from skillopt.edits.select import REVIEW, Ranked
from skillopt.edits.update import update
from skillopt.skill import Applied, Edit, Skill

EXAMPLES = "exemplar/"
"""How the source of an edit begins that was read off the training data without an LLM."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    name: str
    applied: Applied


def candidates(skill: Skill, ranked: Sequence[Ranked], ctx: Context) -> list[Candidate]:
    """The first `gradient.candidates` variants, as far as they differ; the first one has every selected edit.

    Edits are applied in the order in which they were proposed, not by rank: a reader sees rules before examples.
    """
    chosen = sorted((row.edit for row in ranked if row.selected), key=lambda edit: edit.id)
    most = ctx.config.gradient.candidates
    made: list[Candidate] = []
    for name, least, kept in _VARIANTS:
        applied = update(skill, kept(chosen), ctx)
        if least <= most and len(made) < most and all(_differs(applied, other) for other in made):
            made.append(Candidate(name=name, applied=applied))
    return made


def _differs(applied: Applied, other: Candidate) -> bool:
    return bool(applied.applied) and applied.skill.hash != other.applied.skill.hash


def _written(edits: Sequence[Edit]) -> list[Edit]:
    return [edit for edit in edits if not edit.source.startswith(EXAMPLES)]


def _counted(edits: Sequence[Edit]) -> list[Edit]:
    """What was read off the data; a person's choice is in every candidate."""
    return [edit for edit in edits if edit.source.startswith((EXAMPLES, REVIEW))]


def _without_riskiest(edits: Sequence[Edit]) -> list[Edit]:
    """The edit that takes away most, or else the one with the least support, is left out."""
    free = [edit for edit in edits if not edit.source.startswith(REVIEW)]
    if len(free) < 2:
        return list(edits)
    riskiest = max(free, key=lambda edit: (len(edit.anchor), -len(edit.trajectory_ids), edit.id))
    return [edit for edit in edits if edit.id != riskiest.id]


_VARIANTS: tuple[tuple[str, int, Callable[[Sequence[Edit]], list[Edit]]], ...] = (
    ("all edits", 1, list),
    ("without examples from the data", 2, _written),
    ("only examples from the data", 2, _counted),
    ("without the riskiest edit", 3, _without_riskiest),
)
"""Name, how many candidates a step must have for it, and which edits it keeps. A race for the riskiest edit alone costs
more rollouts than it saves (bench/LEADERBOARD.md), so that two candidates are never about that."""
