"""Trackers: send a run's events, as they happen, to tools that people already use. None of them can harm the run."""

from skillopt.report.trackers.base import About, Tracker
from skillopt.report.trackers.threads import Tracking, check_trackers, tracking

__all__ = ["About", "Tracker", "Tracking", "check_trackers", "tracking"]
