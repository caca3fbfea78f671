"""The version of SkillOpt and the number of its training method, for code and packaging."""

__version__ = "0.2.0"
METHOD = "10"
"""The number of the training method. It changes if the same replies would lead to a different skill, or if different
requests would be sent. An unfinished run is never silently continued with a different method."""
