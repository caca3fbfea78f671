"""Update, the SGD step: edits are applied to the document, within the limits of the config."""

from __future__ import annotations

from collections.abc import Iterable

from skillopt.core.context import Context
from skillopt.skill import Applied, Edit, Limits, Skill, apply_edits


def update(skill: Skill, edits: Iterable[Edit], ctx: Context) -> Applied:
    """The new skill, what was applied, and what was skipped and why. Edits and files have a greatest length."""
    config, package = ctx.config.optimizer, ctx.config.package
    limits = Limits(
        max_edit_tokens=config.max_edit_tokens,
        max_skill_tokens=config.max_skill_tokens,
        max_file_tokens=package.max_file_tokens,
        max_total_tokens=package.max_total_tokens,
        train=package.train,
    )
    return apply_edits(skill, edits, limits)
