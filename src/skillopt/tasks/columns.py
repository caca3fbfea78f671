"""A file as its user has it: which column is what, which rows are copies, and which cannot be tasks."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.tasks.base import Item
from skillopt.tasks.data import (
    WINDOWS,
    Fields,
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

NAMES = {
    "id": ("id", "uid", "key"),
    "question": ("question", "prompt", "input", "query", "text", "instruction", "task", "message", "problem"),
    "answers": ("answers", "answer", "label", "target", "expected", "gold", "output", "completion", "solution"),
    "context": ("context", "passage", "document", "background"),
    "type": ("type", "topic", "category", "kind"),
}
"""What people call an item's fields; the first that a file has is taken."""
_IN_A_HEADING = {
    "question": ("question", "prompt", "query", "instruction", "request", "message", "problem", "task", "input"),
    "answers": ("answer", "label", "expected", "gold", "solution", "reply", "response", "output"),
    "id": ("id", "uid", "key", "number", "nr", "no"),
    "type": ("type", "topic", "category", "kind", "area", "department", "team", "section", "domain", "product"),
}
"""Words that give a longer heading away, such as "Customer question"."""
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_PLACEHOLDER = re.compile(r"#?n/a|n\.a\.?|tbd|tba|todo|xxx+|null|nan|[-–—?.…_]+|\W*placeholder\W*", re.IGNORECASE)
"""What stands in a cell that nobody has filled in yet."""
_A_LABEL = 0.2
"""A text that this share of the rows has as its answer is a label, whatever it looks like."""


class BadRowsError(UserError):
    """Rows that cannot be tasks; `skip_bad` would leave them out."""


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """What a file holds, each task once."""

    file: Path
    rows: int
    items: list[Item]
    columns: dict[str, str]
    """Field → column."""
    copies: list[tuple[str, str]]
    """Rows that repeat an earlier one: its place, and the place of the first."""
    left_out: list[Problem]
    """Rows that cannot be tasks, where those are to be left out."""
    placeholders: list[Problem]
    """Rows whose answer looks as if nobody had filled it in."""
    encoding: str

    def lines(self) -> list[str]:
        """How the file was read, for the person whose file it is."""
        pairs = ", ".join(f"{column} → {field}" for field, column in self.columns.items())
        others = "(--question, --answer, --id and --type choose others)"
        told = [f"{self.file}: {self.rows} rows{self._separated()}: {pairs} {others}"]
        first = self.items[0]
        answer = f" → {shortened(' | '.join(first.answers))}"
        shown = shortened(first.question) + answer if first.answers else first.question
        told.append(f"first task: {shortened(shown, 130)}")
        if self.copies:
            repeats = listed([f"{_line(where)} (as {_line(first)})" for where, first in self.copies])
            told.append(f"{len(self.copies)} rows repeat an earlier one and are left out: lines {repeats}")
        return [*told, *self.warnings()]

    def warnings(self) -> list[str]:
        """What its owner should look at before a training."""
        told = []
        if self.encoding == WINDOWS:
            told.append(f"warn  {self.file}: is not UTF-8 and was read as Windows text (cp1252); are é, ß and “ right?")
        if self.left_out:
            told.append(f"warn  {_rows(self.left_out)} left out, which cannot be tasks:")
            told += [f"  {line}" for line in problem_lines(self.left_out)]
        if self.placeholders:
            what = "kept whose answer looks like a placeholder (--skip-bad leaves them out)"
            told.append(f"warn  {_rows(self.placeholders)} {what}:")
            told += [f"  {line}" for line in problem_lines(self.placeholders)]
        return told

    def _separated(self) -> str:
        if self.file.suffix.lower() not in {".csv", ".tsv"}:
            return ""
        by = _SEPARATORS.get(separator(self.file, self.encoding))
        return f", cells separated by {by}" if by else ""


def read_task_file(
    file: Path, *, columns: Mapping[str, str] | None = None, answers: bool = True, skip_bad: bool = False
) -> TaskFile:
    """The tasks of a file, whatever its columns are called; `columns` (field → column) names those that are known.

    Rows that cannot be tasks are all named in one error; with `skip_bad` they are left out, and so are those with a
    placeholder as their answer.
    """
    encoding = encoding_of(file) if file.is_file() else "utf-8"
    every = list(read_rows(file, any_names=True, encoding=encoding))
    if not every:
        raise UserError(f"{file}: holds no items")
    rows, repeats = _without_repeats(every)
    named = _columns(file, [row for _, row in rows if isinstance(row, dict)], columns or {}, answers)
    placed, wrong = sorted_rows(((where, _named(row, named)) for where, row in rows), answers=answers)
    kept, copies, at_odds = sorted_copies(placed)
    placeholders = _placeholders(kept)
    if (wrong or at_odds) and not skip_bad:
        raise BadRowsError("\n".join(problem_lines([*wrong, *at_odds, *placeholders])))
    gone = {where for wheres, _ in placeholders for where in wheres} if skip_bad else ()
    items = [item for where, item in kept if where not in gone]
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
    """Rows that repeat an earlier one in every cell are copies, also if they have an id."""
    first: dict[str, str] = {}
    kept, copies = [], []
    for where, row in rows:
        whole = json.dumps(row, sort_keys=True) if isinstance(row, dict) else where
        if whole in first:
            copies.append((where, first[whole]))
        else:
            first[whole] = where
            kept.append((where, row))
    return kept, copies


def _placeholders(placed: Sequence[Placed]) -> list[Problem]:
    found: dict[str, list[str]] = {}
    for where, item in placed:
        if len(item.answers) == 1 and _PLACEHOLDER.fullmatch(item.answers[0].strip()):
            found.setdefault(item.answers[0], []).append(where)
    few = _A_LABEL * len(placed)
    return [(wheres, f": the answer is {answer!r}") for answer, wheres in found.items() if len(wheres) < few]


def _rows(problems: Sequence[Problem]) -> str:
    count = sum(len(wheres) for wheres, _ in problems)
    return "1 row is" if count == 1 else f"{count:,} rows are"


def _named(row: object, named: dict[str, str]) -> object:
    """A row with our names for its fields; what is no object is complained of later, with all others."""
    if not isinstance(row, dict):
        return row
    fields = {field: row[column] for field, column in named.items() if column in row}
    return {key: value for key, value in row.items() if key not in named.values() and key not in fields} | fields


def _columns(file: Path, rows: Sequence[Fields], wanted: Mapping[str, str], answers: bool) -> dict[str, str]:
    """Field → column: what the user says, else a column of a usual name, else the one whose heading has such a word."""
    columns = list(dict.fromkeys(str(key) for row in rows[:50] for key in row))
    found = {field: column for field, column in wanted.items() if column}
    for field, column in found.items():
        if column not in columns:
            raise UserError(f"{_OPTIONS[field]}: '{file}' has no column '{column}'; it has: {', '.join(columns)}")
    for field, usual in NAMES.items():
        free = {column.casefold().strip(): column for column in reversed(columns) if column not in found.values()}
        if field not in found and (name := next((name for name in usual if name in free), "")):
            found[field] = free[name]
    for field in ("question", "answers", "id", "type"):
        if field in found:
            continue
        free_ones = [column for column in columns if column not in found.values()]
        if field in _FITS:
            free_ones = [column for column in free_ones if _FITS[field]([row.get(column) for row in rows])]
        near = _by_heading(field, free_ones)
        if len(near) == 1 or (near and field in _FITS):
            found[field] = near[0]
        elif field == "question" or (field == "answers" and answers):
            several = f"several columns look like the {field} ({', '.join(near)})"
            seen = several if near else f"no column looks like the {field}"
            raise UserError(f"{file}: {seen}; name it with {_OPTIONS[field]} COLUMN (there are: {', '.join(columns)})")
    return {field: found[field] for field in NAMES if field in found}


def _names_rows(cells: Sequence[Any]) -> bool:
    """Nearly every row has one, and no two rows have the same."""
    texts = [str(cell).strip() for cell in cells if isinstance(cell, str | int)]
    return len(set(texts)) == len(texts) >= 0.9 * len(cells)


def _groups_rows(cells: Sequence[Any]) -> bool:
    """A few short names that come up again and again."""
    counts = Counter(cell for cell in cells if isinstance(cell, str) and len(cell) <= 60)
    return 2 <= len(counts) <= 40 and counts.total() == len(cells) and len(counts) * 2 <= len(cells)


_OPTIONS = {"question": "--question", "answers": "--answer", "id": "--id", "type": "--type"}
_FITS = {"id": _names_rows, "type": _groups_rows}
"""A heading alone does not make a column the id or the type: its cells must be fit for it."""


def _by_heading(field: str, columns: Sequence[str]) -> list[str]:
    """The columns whose heading has the most telling of these words."""
    spaced = {column: re.sub(r"([a-z])([A-Z])", r"\1 \2", column).casefold() for column in columns}
    words = {column: {word.rstrip("s") for word in re.findall(r"[^\W\d_]+", spaced[column])} for column in columns}
    for name in _IN_A_HEADING[field]:
        if near := [column for column in columns if name in words[column]]:
            return near
    return []


def _line(where: str) -> str:
    return where.rpartition(":")[2].strip().removeprefix("item ")
