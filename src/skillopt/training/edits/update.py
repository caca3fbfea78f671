"""Update, the SGD step: edits are applied to the document, within the limits of the config.

A step has a candidate with all selected edits, and another without examples read off the data: these help some targets
and mislead others. The race in training/gates/screening.py finds out on a few items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skillopt.config import Config
from skillopt.record.edits import Ranked
from skillopt.skill import Applied, Edit, SizeLimits, Skill, apply_edits
from skillopt.training.context import Context


def update(skill: Skill, edits: Iterable[Edit], ctx: Context) -> Applied:
    """The new skill, what was applied, and what was skipped and why."""
    return apply_edits(skill, edits, limits_of(ctx.config))


def limits_of(config: Config) -> SizeLimits:
    """What an edit and each file of a skill may grow to."""
    return SizeLimits(
        max_edit_tokens=config.optimizer.max_edit_tokens,
        max_skill_tokens=config.optimizer.max_skill_tokens,
        max_file_tokens=config.package.max_file_tokens,
        max_total_tokens=config.package.max_total_tokens,
        train=config.package.train,
    )


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
