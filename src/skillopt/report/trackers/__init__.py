"""Trackers: a run told, as it happens, to the tools that people already watch. None of them can hurt the run."""

from skillopt.report.trackers.base import About, Tracker
from skillopt.report.trackers.threads import Tracking, check_trackers, tracking

__all__ = ["About", "Tracker", "Tracking", "check_trackers", "tracking"]
