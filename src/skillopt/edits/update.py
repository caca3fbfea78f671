"""Update, the SGD step: edits are applied to the document, within the limits of the config."""

from __future__ import annotations

from collections.abc import Iterable

from skillopt.core.context import Context
from skillopt.skill import Applied, Edit, Limits, Skill, apply_edits


def update(skill: Skill, edits: Iterable[Edit], ctx: Context) -> Applied:
    """The new document, what was applied, and what was skipped and why. Edits and document have a greatest length."""
    config = ctx.config.optimizer
    limits = Limits(max_edit_tokens=config.max_edit_tokens, max_skill_tokens=config.max_skill_tokens)
    return apply_edits(skill, edits, limits)
