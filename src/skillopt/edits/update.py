"""Update, the SGD step: the selected edits are applied to the document."""

from __future__ import annotations

from collections.abc import Iterable

from skillopt.core.context import Context
from skillopt.edits.select import Ranked
from skillopt.skill import Applied, Edit, Limits, Skill, apply_edits


def update(skill: Skill, ranked: Iterable[Ranked], ctx: Context) -> Applied:
    """The candidate, what was applied, and what was skipped and why."""
    return apply_within_limits(skill, (entry.edit for entry in ranked if entry.selected), ctx)


def apply_within_limits(skill: Skill, edits: Iterable[Edit], ctx: Context) -> Applied:
    """Gradient clipping: an edit, and the document, may only be so long."""
    config = ctx.config.optimizer
    limits = Limits(max_edit_tokens=config.max_edit_tokens, max_skill_tokens=config.max_skill_tokens)
    return apply_edits(skill, edits, limits)
