"""The candidates of a step: all selected edits, and the same without examples read off the data.

Examples help some targets and mislead others. The race in training/gates/screening.py finds out on a few items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillopt.record.edits import Ranked
from skillopt.skill import Applied, Skill
from skillopt.training.context import Context
from skillopt.training.edits.update import update

EXAMPLES = "exemplar/"
"""Source prefix of edits that were read off the training data without an LLM."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    name: str
    applied: Applied


def candidates(skill: Skill, ranked: Sequence[Ranked], ctx: Context) -> list[Candidate]:
    """One candidate, or two if they differ; the first one has every selected edit.

    Edits are applied in the order in which they were proposed, not by rank: a reader sees rules before examples.
    """
    chosen = sorted((row.edit for row in ranked if row.selected), key=lambda edit: edit.id)
    made = [Candidate(name="all edits", applied=update(skill, chosen, ctx))]
    written = update(skill, [edit for edit in chosen if not edit.source.startswith(EXAMPLES)], ctx)
    if written.applied and written.skill.hash != made[0].applied.skill.hash:
        made.append(Candidate(name="without examples from the data", applied=written))
    return made
