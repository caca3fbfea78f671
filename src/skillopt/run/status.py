"""What became of a run, in one word and a reason: the same on the terminal, on the page and in the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillopt.run.events import last_events

WORDS = ("running", "finished", "stopped", "interrupted", "unreadable")
"""running: a process is at work; stopped: it ended with a reason; interrupted: its process is gone without one."""
BY_HAND = "interrupted"
"""The reason of a stop by Ctrl-C or Pause."""
_TAIL = 64 * 1024
GONE = "its process is gone: it was killed, or the machine was restarted"


def status_of(summary: Mapping[str, Any] | None, events: Path, *, busy: bool) -> tuple[str, str]:
    """The word and, where the run is not finished and nobody works on it, the reason."""
    said = str(summary["status"]) if summary else "running"
    if said == "finished":
        return said, ""
    if busy:
        return "running", ""
    if said == "stopped":
        return said, str((summary or {}).get("stop_reason", ""))
    reason = _last_stop(events)
    return ("stopped", reason) if reason else ("interrupted", GONE)


def _last_stop(events: Path) -> str:
    """The reason of a stop before the first state was written (the initial skill could not be measured)."""
    last = (last_events(events, _TAIL) or [{}])[-1]
    return str(last.get("reason", "")) if last.get("kind") == "run_stopped" else ""


def remedy(status: str, reason: str) -> str:
    """What to do about a run that is not finished; empty where nothing is wrong."""
    if status == "interrupted":
        return "Resume continues after its last finished step; replies that were received are not paid for again."
    if status != "stopped" or reason == BY_HAND:
        return ""
    if reason.startswith("trained;"):
        return "Resume reads the test split and finishes the run."
    return "Fix what the reason names, then resume: it continues after its last finished step, and pays nothing twice."
