"""The version and the method, in the one place that code and packaging read."""

__version__ = "0.2.0"
METHOD = "6"
"""Changes if the same replies would lead to another skill, or if other requests would be sent. An unfinished run
does not silently continue by another method."""
