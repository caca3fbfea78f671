"""The matrix of `skillopt check`: skills × targets, and what changed since it was recorded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt.cli.app import print_json, say
from skillopt.errors import Damaged, UserError
from skillopt.keys import redact

if TYPE_CHECKING:
    from skillopt.measure.batch import CheckOutcome
    from skillopt.record.matrix import Matrix


def show_matrix(outcomes: Sequence[CheckOutcome], *, as_json: bool) -> None:
    from skillopt.measure.matrix import matrix_of
    from skillopt.view.check_lines import matrix_lines

    matrix = matrix_of(outcomes)
    if as_json:
        print_json(matrix)
    else:
        print("", *matrix_lines(matrix), sep="\n")


def read_matrix(file: Path) -> Matrix | None:
    """The matrix that --watch recorded; None if there is none yet."""
    from skillopt.record.matrix import Matrix
    from skillopt.record.run import read_record

    if file.is_dir():
        raise UserError(f"--watch: {file} is a folder; name a file")
    try:
        return read_record(Matrix, file) if file.is_file() else None
    except Damaged:
        raise UserError(
            f"--watch: {file} is not a matrix of skillopt check; remove the file, or name another"
        ) from None


def watch_matrix(outcomes: Sequence[CheckOutcome], recorded: Matrix | None, file: Path, *, as_json: bool) -> int:
    """Print the cells whose word changed, record the matrix, and return the exit code: 1 if a cell got worse, else the
    code for the reason why a skill was not measured."""
    from skillopt.measure.matrix import changes, matrix_of, merged
    from skillopt.record.files import write_json
    from skillopt.view.check_lines import change_line

    now = matrix_of(outcomes, recorded)
    changed = changes(recorded, now)
    write_json(file, merged(recorded, now))
    if as_json:
        print_json(now.model_copy(update={"cells": tuple(change.after for change in changed)}))
    else:
        for change in changed:
            say(redact(change_line(change)))
    measured = [outcome.result for outcome in outcomes if outcome.result and not outcome.result.same_text]
    if recorded and measured and not any(result.telemetry.paid.calls for result in measured):
        fix = 'for fresh samples, add "env.output_root=outputs/$(date +%F)"'
        print(f"note: every reply came from the journal, so nothing could change; {fix}", file=sys.stderr)
    if any(change.worse for change in changed):
        return 1
    return next((code for code in (2, 3) if code in {outcome.code for outcome in outcomes}), 0)
