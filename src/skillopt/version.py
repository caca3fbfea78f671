"""The version of SkillOpt and the number of its training method, for code and packaging."""

__version__ = "0.2.0"
METHOD = "7"
"""The number of the training method. It changes if the same replies would lead to another skill, or if other requests
would be sent. No unfinished run silently continues with another method."""
