"""`handoff`: a person or a coding agent acts as the model. Each request becomes a file, and its reply is a second file
next to it."""

from skillopt.models.handoff.box import Box, Letter, box_of
from skillopt.models.handoff.model import HandoffModel, open_handoff

__all__ = ["Box", "HandoffModel", "Letter", "box_of", "open_handoff"]
