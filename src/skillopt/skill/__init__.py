"""The parameter: a skill document, its edits, and the log that proves where each line came from."""

from skillopt.skill.document import Section, Skill, Span
from skillopt.skill.edit import Applied, Edit, Limits, Skip, apply_edits
from skillopt.skill.patch_log import Entry, PatchLog, PatchLogError, replay

__all__ = [
    "Applied",
    "Edit",
    "Entry",
    "Limits",
    "PatchLog",
    "PatchLogError",
    "Section",
    "Skill",
    "Skip",
    "Span",
    "apply_edits",
    "replay",
]
