"""The status of a handoff run: its open letters, and whether a process works on it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypedDict

from skillopt.errors import UserError
from skillopt.models.handoff.box import LetterState, box_of, meant
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.status import status_of

LOOK = 0.3
"""Seconds between two checks of the letters."""
BEGINS = 15.0
"""The maximum number of seconds between the start of a training and the first file of its run."""


class LettersStatus(TypedDict):
    run: str
    status: str
    reason: str
    letters: list[LetterState]
    """The open letters."""


def letter_status(path: Path) -> LettersStatus:
    path = meant(path)
    status, reason = _status(path)
    letters = [letter.row() for letter in box_of(path).open_letters()]
    return {"run": str(path), "status": status, "reason": reason, "letters": letters}


def wait_for_letter(path: Path, seconds: float | None = None) -> LettersStatus:
    """Wait until a letter is open, the run has ended, or `seconds` are over; then return `letter_status`.

    If no process works on the run, wait up to `BEGINS` seconds, because a process may be about to start. A folder of
    letters, or an empty folder that may become one, does not show whether a run has ended. For such a path, only an
    open letter or `seconds` end the wait.
    """
    start, worked = time.monotonic(), False
    while True:
        waited = time.monotonic() - start
        over = seconds is not None and waited >= seconds
        late = over or waited >= BEGINS
        try:
            status_now = letter_status(path)
        except UserError:  # the run is not there yet
            empty = path.is_dir() and not any(path.iterdir())
            if over or (late and not empty):
                raise
        else:
            running, letters = status_now["status"] in {"running", "unknown"}, status_now["letters"]
            worked = worked or running
            settled = meant(path) == path and (
                letters or status_now["status"] == "finished"
            )  # the path names one run, so no newer run can begin
            if over or (letters if running else worked or late or settled):
                return status_now
        time.sleep(LOOK)


def _status(path: Path) -> tuple[str, str]:
    """The status of a path, and the reason for it. For a run, the status is `running`, `finished`, `stopped` or
    `interrupted`; for a measurement, `running` or `ended`; for a shared folder of letters, `unknown`."""
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
