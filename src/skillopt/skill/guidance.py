"""Guidance of the slow update: lines in the protected region, which have separate edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skillopt.skill.document import Skill
from skillopt.skill.edit import Applied, Edit, SizeLimits, apply_edits


def apply_guidance(skill: Skill, edits: Sequence[Edit], limits: SizeLimits) -> Applied:
    """Apply edits to the protected region only: anchors are lines of it, additions are put at its end, lines that no
    edit names stay. `limits` hold for the region."""
    inside = [edit.model_copy(update={"section": ""}) for edit in edits]
    result = apply_edits(Skill(skill.guidance), inside, limits)
    return replace(result, skill=skill.with_guidance(result.skill.text) if result.applied else skill)
