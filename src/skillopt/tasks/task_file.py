"""Reads a user's file: its tasks, the rows that are copies, and the rows that cannot be tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.errors import UserError
from skillopt.tasks.base import Item
from skillopt.tasks.columns import find_columns, renamed
from skillopt.tasks.data import (
    WINDOWS,
    Placed,
    Problem,
    Row,
    encoding_of,
    listed,
    problem_lines,
    read_rows,
    separator,
    shortened,
    sorted_rows,
)
from skillopt.tasks.splits import sorted_copies

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_PLACEHOLDER = re.compile(r"#?n/a|n\.a\.?|tbd|tba|todo|xxx+|null|nan|[-–—?.…_]+|\W*placeholder\W*", re.IGNORECASE)
"""Matches the text of a cell that nobody has filled in yet."""
_A_LABEL = 0.2
"""An answer that at least this share of the rows has is a label, even if the answer looks like a placeholder."""


class BadRowsError(UserError):
    """The file has rows that cannot be tasks; `skip_bad` would leave them out."""


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """The content of a task file, without copies."""

    file: Path
    rows: int
    items: list[Item]
    columns: dict[str, str]
    """Field → name of its column."""
    copies: list[tuple[str, str]]
    """Rows that repeat a row above them: the location of each, and the location of the row that it repeats."""
    left_out: list[Problem]
    """Rows that were left out because they cannot be tasks."""
    placeholders: list[Problem]
    """Rows with an answer that looks like a placeholder."""
    encoding: str

    def lines(self) -> list[str]:
        """Lines that tell the owner of the file how the file was read."""
        pairs = ", ".join(f"{column} → {field}" for field, column in self.columns.items())
        others = "(to use other columns: --question, --answer, --id, --type)"
        lines = [f"{self.file}: {self.rows} rows{self._separated()}: {pairs} {others}"]
        first = self.items[0]
        answer = f" → {shortened(' | '.join(first.answers))}"
        shown = shortened(first.question) + answer if first.answers else first.question
        lines.append(f"first task: {shortened(shown, 130)}")
        if self.copies:
            repeats = listed([f"{_line(where)} (as {_line(first)})" for where, first in self.copies])
            lines.append(f"{len(self.copies)} rows repeat an earlier one and are left out: lines {repeats}")
        return [*lines, *self.warnings()]

    def warnings(self) -> list[str]:
        """Warnings for the file's owner before a training."""
        lines = []
        if self.encoding == WINDOWS:
            lines.append(
                f"warn  {self.file}: is not UTF-8 and was read as Windows text (cp1252); check letters such as é and ß"
            )
        if self.left_out:
            lines.append(f"warn  {_rows(self.left_out)} left out (not usable as tasks):")
            lines += [f"  {line}" for line in problem_lines(self.left_out)]
        if self.placeholders:
            what = "kept, although the answer looks like a placeholder (--skip-bad leaves them out)"
            lines.append(f"warn  {_rows(self.placeholders)} {what}:")
            lines += [f"  {line}" for line in problem_lines(self.placeholders)]
        return lines

    def _separated(self) -> str:
        if self.file.suffix.lower() not in {".csv", ".tsv"}:
            return ""
        by = _SEPARATORS.get(separator(self.file, self.encoding))
        return f", cells separated by {by}" if by else ""


def read_task_file(
    file: Path, *, columns: Mapping[str, str] | None = None, answers: bool = True, skip_bad: bool = False
) -> TaskFile:
    """Read the tasks of a file with any column names. `columns` (field → column) are those that the user named.

    All rows that cannot be tasks are named in one error. With `skip_bad`, these rows are left out, and so are rows
    whose answer is a placeholder.
    """
    encoding = encoding_of(file)
    every = list(read_rows(file, any_names=True, encoding=encoding))
    if not every:
        raise UserError(f"{file}: holds no items")
    rows, repeats = _without_repeats(every)
    named = find_columns(file, [row for _, row in rows if isinstance(row, dict)], columns or {}, answers)
    placed, wrong = sorted_rows(((where, renamed(row, named)) for where, row in rows), answers=answers)
    unique, copies, at_odds = sorted_copies(placed)
    placeholders = _placeholders(unique)
    if (wrong or at_odds) and not skip_bad:
        raise BadRowsError("\n".join(problem_lines([*wrong, *at_odds, *placeholders])))
    gone = {where for wheres, _ in placeholders for where in wheres} if skip_bad else ()
    items = [item for where, item in unique if where not in gone]
    if not items:
        raise UserError(f"{file}: no row can be a task")
    return TaskFile(
        file=file,
        rows=len(every),
        items=items,
        columns=named,
        copies=[*repeats, *copies],
        left_out=[*wrong, *at_odds, *placeholders] if skip_bad else [],
        placeholders=[] if skip_bad else placeholders,
        encoding=encoding,
    )


def _without_repeats(rows: Iterable[Row]) -> tuple[list[Row], list[tuple[str, str]]]:
    """The rows without copies; and for each copy, its location and the location of the row that it repeats. A copy
    repeats every cell, also the id."""
    first: dict[str, str] = {}
    unique, copies = [], []
    for where, row in rows:
        whole = json.dumps(row, sort_keys=True) if isinstance(row, dict) else where
        if whole in first:
            copies.append((where, first[whole]))
        else:
            first[whole] = where
            unique.append((where, row))
    return unique, copies


def _placeholders(placed: Sequence[Placed]) -> list[Problem]:
    rows_by_answer: dict[str, list[str]] = {}
    for where, item in placed:
        if len(item.answers) == 1 and _PLACEHOLDER.fullmatch(item.answers[0].strip()):
            rows_by_answer.setdefault(item.answers[0], []).append(where)
    few = _A_LABEL * len(placed)
    return [(wheres, f": the answer is {answer!r}") for answer, wheres in rows_by_answer.items() if len(wheres) < few]


def _rows(problems: Sequence[Problem]) -> str:
    count = sum(len(wheres) for wheres, _ in problems)
    return "1 row is" if count == 1 else f"{count:,} rows are"


def _line(where: str) -> str:
    return where.rpartition(":")[2].strip().removeprefix("item ").removeprefix("row ")
