"""What became of a run, in one word and a reason: the same on the terminal, on the page and in the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from skillopt.errors import StopReason
from skillopt.record.events import last_events
from skillopt.record.summary import Summary

WORDS = ("running", "finished", "stopped", "interrupted", "unreadable")
"""running: a process is at work; stopped: it ended with a reason; interrupted: its process is gone without one."""
_TAIL = 64 * 1024
GONE = "its process is gone: it was killed, or the machine was restarted"


_WORDS = {
    StopReason.PATIENCE: "the last steps brought no improvement, as many as train.patience allows",
    StopReason.ALL_RIGHT: "all validation tasks are right, so that no gate could accept anything more",
}


def early_end(summary: Mapping[str, JsonValue] | Summary) -> str:
    """Why a finished training did not do all of its steps, in words; empty if it did."""
    reason = str(summary.get("stop_reason") or "")
    return _WORDS.get(StopReason.of(reason), reason)


def status_of(summary: Mapping[str, JsonValue] | Summary | None, events: Path, *, busy: bool) -> tuple[str, str]:
    """The word and, unless somebody works on it, why the run ended before its last step."""
    said = str(summary["status"]) if summary else "running"
    if summary and said == "finished":
        return said, early_end(summary)
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
    if status != "stopped" or StopReason.of(reason) is StopReason.BY_HAND:
        return ""
    if StopReason.of(reason) is StopReason.SEALED:
        return "Resume reads the test split and finishes the run."
    return "Fix what the reason names, then resume: it continues after its last finished step, and pays nothing twice."
