"""Update, the SGD step: applies edits to the skill, within the limits of the config."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from skillopt.config import Config
from skillopt.skill import Applied, Edit, SizeLimits, Skill, apply_edits
from skillopt.tasks.base import is_judged
from skillopt.training.context import Context
from skillopt.training.edits.risk import without_judge_talk


def update(skill: Skill, edits: Iterable[Edit], ctx: Context) -> Applied:
    """Apply edits to a skill. Return the new skill, the applied edits, and the skipped edits with the reasons."""
    if not is_judged(ctx.env):
        return apply_edits(skill, edits, limits_of(ctx.config))
    kept, refused = without_judge_talk(edits, skill)
    applied = apply_edits(skill, kept, limits_of(ctx.config))
    return replace(applied, skipped=(*applied.skipped, *refused))


def limits_of(config: Config) -> SizeLimits:
    """The config's limits for the size of an edit and of each file of a skill."""
    return SizeLimits(
        max_edit_tokens=config.optimizer.max_edit_tokens,
        max_skill_tokens=config.optimizer.max_skill_tokens,
        max_file_tokens=config.package.max_file_tokens,
        max_total_tokens=config.package.max_total_tokens,
        train=config.package.train,
    )


EXAMPLES = "exemplar/"
"""An edit's source begins with this if an analyst made the edit from the training data, without an LLM."""
