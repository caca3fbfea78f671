"""Applies edits to the guidance of the slow update: the lines in the protected region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skillopt.skill.document import Skill
from skillopt.skill.edit import Applied, Edit, SizeLimits, apply_edits


def apply_guidance(skill: Skill, edits: Sequence[Edit], limits: SizeLimits) -> Applied:
    """Apply edits to the protected region only. Anchors are lines of the region, and additions are put at its end.
    `limits` apply to the region."""
    inside = [edit.model_copy(update={"section": ""}) for edit in edits]
    result = apply_edits(Skill(skill.guidance), inside, limits)
    return replace(result, skill=skill.with_guidance(result.skill.text) if result.applied else skill)
