"""Skills (a document or a package), their edits, and the log that proves where each line came from."""

from skillopt.skill.document import FILE, Skill, SkillSection, Span
from skillopt.skill.edit import Applied, Edit, SizeLimits, Skip, apply_edits
from skillopt.skill.guidance import apply_guidance
from skillopt.skill.patch_log import Entry, PatchLog, PatchLogError, replay

__all__ = [
    "FILE",
    "Applied",
    "Edit",
    "Entry",
    "PatchLog",
    "PatchLogError",
    "SizeLimits",
    "Skill",
    "SkillSection",
    "Skip",
    "Span",
    "apply_edits",
    "apply_guidance",
    "replay",
]
