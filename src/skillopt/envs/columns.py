"""A file as its user has it: which column is the question, which the answer, and which rows are copies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.envs.base import Item
from skillopt.envs.data import items_from, listed, read_rows, separator
from skillopt.envs.splits import without_copies
from skillopt.errors import UserError

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
}
"""Words that give a longer heading away, such as "Customer question"."""
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


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

    def lines(self) -> list[str]:
        """How the file was read, for the person whose file it is."""
        pairs = ", ".join(f"{column} → {field}" for field, column in self.columns.items())
        told = [f"{self.file}: {self.rows} rows{self._separated()}: {pairs} (--question and --answer choose others)"]
        first = self.items[0]
        shown = f"{_short(first.question)} → {_short(' | '.join(first.answers))}" if first.answers else first.question
        told.append(f"first task: {_short(shown, 130)}")
        if self.copies:
            repeats = listed([f"{_line(where)} (as {_line(first)})" for where, first in self.copies])
            told.append(f"{len(self.copies)} rows repeat an earlier one and are left out: lines {repeats}")
        return told

    def _separated(self) -> str:
        if self.file.suffix.lower() not in {".csv", ".tsv"}:
            return ""
        by = _SEPARATORS.get(separator(self.file))
        return f", cells separated by {by}" if by else ""


def read_task_file(file: Path, *, question: str = "", answer: str = "", answers: bool = True) -> TaskFile:
    """The tasks of a file, whatever its columns are called; `question` and `answer` name theirs."""
    rows = list(read_rows(file, any_names=True))
    if not rows:
        raise UserError(f"{file}: holds no items")
    columns = list(dict.fromkeys(str(key) for _, row in rows[:50] if isinstance(row, dict) for key in row))
    named = _columns(file, columns, question, answer, answers)
    placed = items_from(((where, _named(row, named)) for where, row in rows), answers=answers)
    items, copies = without_copies(placed)
    return TaskFile(file=file, rows=len(rows), items=items, columns=named, copies=copies)


def _named(row: object, named: dict[str, str]) -> object:
    """A row with our names for its fields; what is no object is complained of later, with all others."""
    if not isinstance(row, dict):
        return row
    fields = {field: row[column] for field, column in named.items() if column in row}
    return {key: value for key, value in row.items() if key not in named.values() and key not in fields} | fields


def _columns(file: Path, columns: list[str], question: str, answer: str, answers: bool) -> dict[str, str]:
    """Field → column: what the user says, else a column of a usual name, else the one whose heading has such a word."""
    found: dict[str, str] = {}
    for field, column, option in (("question", question, "--question"), ("answers", answer, "--answer")):
        if column and column not in columns:
            raise UserError(f"{option}: '{file}' has no column '{column}'; it has: {', '.join(columns)}")
        if column:
            found[field] = column
    for field, usual in NAMES.items():
        free = {column.casefold().strip(): column for column in reversed(columns) if column not in found.values()}
        if field not in found and (name := next((name for name in usual if name in free), "")):
            found[field] = free[name]
    for field, option in (("question", "--question"), ("answers", "--answer")):
        if field in found:
            continue
        near = _by_heading(field, [column for column in columns if column not in found.values()])
        if len(near) == 1:
            found[field] = near[0]
        elif field == "question" or answers:
            several = f"several columns look like the {field} ({', '.join(near)})"
            seen = several if near else f"no column looks like the {field}"
            raise UserError(f"{file}: {seen}; name it with {option} COLUMN (there are: {', '.join(columns)})")
    return {field: found[field] for field in NAMES if field in found}


def _by_heading(field: str, columns: Sequence[str]) -> list[str]:
    """The columns whose heading has the most telling of these words."""
    spaced = {column: re.sub(r"([a-z])([A-Z])", r"\1 \2", column).casefold() for column in columns}
    words = {column: {word.rstrip("s") for word in re.findall(r"[^\W\d_]+", spaced[column])} for column in columns}
    for name in _IN_A_HEADING[field]:
        if near := [column for column in columns if name in words[column]]:
            return near
    return []


def _short(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _line(where: str) -> str:
    return where.rpartition(":")[2].strip().removeprefix("item ")
