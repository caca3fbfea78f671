"""Trackers: send a run's events, as they happen, to tools that people already use. None of them can harm the run."""

from skillopt.view.trackers.base import About, Tracker
from skillopt.view.trackers.sending import Tracking, check_trackers, tracking

__all__ = ["About", "Tracker", "Tracking", "check_trackers", "tracking"]
