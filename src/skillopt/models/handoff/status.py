"""What a run with letters is waiting for, for whoever answers them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from skillopt.models.handoff.box import box_of, meant
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.status import status_of

LOOK = 0.3
"""Seconds between two looks."""


def standing(path: Path) -> dict[str, Any]:
    """`run`, `status`, `reason`, and the open `letters`."""
    path = meant(path)
    status, reason = _status(path)
    letters = [letter.row() for letter in box_of(path).open_letters()]
    return {"run": str(path), "status": status, "reason": reason, "letters": letters}


def wait_for_letter(path: Path, seconds: float | None = None) -> dict[str, Any]:
    """As `standing`, as soon as a letter is open, the run has no process, or the time is over."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        found = standing(path)
        if found["letters"] or found["status"] != "running":
            return found
        if end is not None and time.monotonic() >= end:
            return found
        time.sleep(LOOK)


def _status(path: Path) -> tuple[str, str]:
    """running, finished, stopped or interrupted; a measurement is running or ended; a shared folder does not show."""
    run = RunDirectory(path)
    if not run.begun and path.resolve().name == "letters":
        run = RunDirectory(path.resolve().parent)
    if not run.begun:
        return "unknown", "a folder of letters does not show whether a run is active"
    if not run.config_json.exists():
        return ("running" if run.busy() else "ended"), ""
    try:
        summary = read_json(run.summary)
    except (OSError, ValueError):
        summary = None
    return status_of(summary, run.events, busy=run.busy())
