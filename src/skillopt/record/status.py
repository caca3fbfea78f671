"""The status of a run: a word and a reason, which the terminal, the page and the files show alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from skillopt.errors import BY_HAND
from skillopt.record.events import last_events
from skillopt.record.summary import Summary

WORDS = ("running", "finished", "stopped", "interrupted", "unreadable")
"""The words for a run's status. `running`: a process works on the run. `stopped`: the run ended early and recorded a
reason. `interrupted`: the process ended without recording a reason."""
_TAIL = 64 * 1024
GONE = "its process is gone: it was killed, or the machine was restarted"


def status_of(summary: Mapping[str, JsonValue] | Summary | None, events: Path, *, busy: bool) -> tuple[str, str]:
    """The status in a word, and why the run ended before its last step (empty while a process works on the run)."""
    word = str(summary["status"]) if summary else "running"
    if summary and word == "finished":
        return word, str(summary.get("stop_reason") or "")
    if busy:
        return "running", ""
    if word == "stopped":
        return word, str((summary or {}).get("stop_reason", ""))
    reason = _last_stop(events)
    return ("stopped", reason) if reason else ("interrupted", GONE)


def ending(status: str, reason: str) -> str:
    """The status as people read it: for a stopped run, `paused`, `budget reached` or `failed`."""
    if status != "stopped":
        return status
    if reason == BY_HAND:
        return "paused"
    return "budget reached" if reason.startswith("budget.") else "failed"


def _last_stop(events: Path) -> str:
    """The reason of a stop before the first state was written (such as: the initial skill could not be measured)."""
    last = (last_events(events, _TAIL) or [{}])[-1]
    return str(last.get("reason", "")) if last.get("kind") == "run_stopped" else ""


def remedy(status: str, reason: str) -> str:
    """Advice about a run that is not finished; empty if nothing is wrong."""
    if status == "interrupted":
        return "Resume the run: it continues after its last finished step, and pays for no reply twice."
    if status != "stopped" or reason == BY_HAND:
        return ""
    return "Fix the cause, then resume the run: it continues after its last finished step, and pays for no reply twice."
