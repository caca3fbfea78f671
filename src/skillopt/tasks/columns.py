"""Finds the column for each field of a task: the user's choice, a usual name, or a usual word in the heading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.tasks.data import SUFFIXES, TEXT, Fields, Placed, Row, items_from, placed_items, read_rows
from skillopt.tasks.nested import at, without
from skillopt.tasks.tables import is_hub_name

NAMES = {
    "id": ("id", "uid", "key"),
    "question": ("question", "prompt", "input", "query", "text", "instruction", "task", "message", "problem"),
    "answers": ("answers", "answer", "label", "target", "expected", "gold", "output", "completion", "solution"),
    "context": ("context", "passage", "document", "background"),
    "type": ("type", "topic", "category", "kind"),
}
"""Usual column names for each field of an item; the first name that a file has is used."""
_IN_A_HEADING = {
    "question": ("question", "prompt", "query", "instruction", "request", "message", "problem", "task", "input"),
    "answers": ("answer", "label", "expected", "gold", "solution", "reply", "response", "output"),
    "id": ("id", "uid", "key", "number", "nr", "no"),
    "type": ("type", "topic", "category", "kind", "area", "department", "team", "section", "domain", "product"),
}
"""Words in a longer heading (such as "Customer question") that show which field the column contains."""


def renamed(row: object, named: Mapping[str, str]) -> object:
    """A row with SkillOpt's names for its fields. A row that is not an object is returned as it is; the caller reports
    it later."""
    if not isinstance(row, dict):
        return row
    fields = {field: value for field, column in named.items() if (value := value_of(row, column)) is not None}
    rest = row
    for column in named.values():  # also remove an answer that is inside another field: an agent would see it
        rest = {key: value for key, value in rest.items() if key != column} if column in rest else without(rest, column)
    return {key: value for key, value in rest.items() if key not in fields} | fields


def value_of(row: Fields, column: str) -> Any:
    """A row's value in a column, or at a path such as `inputs.question`; None if there is none."""
    return row[column] if column in row else at(row, column)


def find_columns(file: Path | str, rows: Sequence[Fields], wanted: Mapping[str, str], answers: bool) -> dict[str, str]:
    """The column of each field: the column that the user chose, else a column with a usual name, else a column whose
    heading contains a usual word."""
    if not rows:  # the caller reports rows that are not objects
        return {}
    columns = list(dict.fromkeys(str(key) for row in rows[:50] for key in row))
    chosen = {_ALSO.get(field, field): column for field, column in wanted.items() if column}
    for field, column in chosen.items():
        if column not in columns and all(at(row, column) is None for row in rows):
            there = ", ".join(paths_of(rows[:50]))
            key = f"env.columns.{field}"
            option = "columns" if isinstance(file, str) else _OPTIONS.get(field, key)
            raise UserError(f"{option}: '{file}' has no column '{column}'; it has: {there} (config key: {key})")
    for field, usual in NAMES.items():
        free = {column.casefold().strip(): column for column in reversed(columns) if column not in chosen.values()}
        if field not in chosen and (name := next((name for name in usual if name in free), "")):
            chosen[field] = free[name]
    for field in ("question", "answers", "id", "type"):
        if field in chosen:
            continue
        free_ones = [column for column in columns if column not in chosen.values()]
        if field in _FITS:
            free_ones = [column for column in free_ones if _FITS[field]([row.get(column) for row in rows])]
        near = _by_heading(field, free_ones)
        if len(near) == 1 or (near and field in _FITS):
            chosen[field] = near[0]
        elif field == "question" or (field == "answers" and answers):
            several = f"several columns look like the {field} ({', '.join(near)})"
            seen = several if near else f"no column looks like the {field}"
            option = f'columns={{"{field}": COLUMN}}' if isinstance(file, str) else f"{_OPTIONS[field]} COLUMN"
            raise UserError(f"{file}: {seen}; choose a column with {option} (the columns are: {', '.join(columns)})")
    return {field: chosen[field] for field in [*NAMES, *(chosen.keys() - NAMES.keys())] if field in chosen}


def paths_of(rows: Sequence[Fields]) -> list[str]:
    """The names of the columns; a column of objects is listed by its inner fields, such as `inputs.question`."""
    paths = []
    for name, value in ((str(name), value) for row in rows for name, value in row.items()):
        paths += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) and value else [name]
    return list(dict.fromkeys(paths))


def tasks_of(
    rows: Iterable[Row], *, file: Path | str, columns: Mapping[str, str] | None = None, answers: bool = True
) -> list[Placed]:
    """Convert rows with any column names to items."""
    every = list(rows)
    named = find_columns(file, [row for _, row in every if isinstance(row, dict)], columns or {}, answers)
    return items_from(((where, renamed(row, named)) for where, row in every), answers=answers)


def placed_tasks(file: Path, *, columns: Mapping[str, str] | None = None, answers: bool = True) -> list[Placed]:
    """All items of a file, with their locations. The columns of a text file must have SkillOpt's names unless
    `columns` names them. In other formats, columns are found as `skillopt init` finds them."""
    if not columns and (file.suffix.lower() in TEXT or not (is_hub_name(file) or file.suffix.lower() in SUFFIXES)):
        return placed_items(file, answers=answers)
    return tasks_of(read_rows(file, any_names=True), file=file, columns=columns, answers=answers)


def _names_rows(cells: Sequence[Any]) -> bool:
    """Are these the cells of an id column? Nearly every row must have an id, and no two rows may have the same id."""
    texts = [str(cell).strip() for cell in cells if isinstance(cell, str | int)]
    return len(set(texts)) == len(texts) >= 0.9 * len(cells)


def _groups_rows(cells: Sequence[Any]) -> bool:
    """Are these the cells of a type column? They must be a few short values that repeat."""
    counts = Counter(cell for cell in cells if isinstance(cell, str) and len(cell) <= 60)
    return 2 <= len(counts) <= 40 and counts.total() == len(cells) and len(counts) * 2 <= len(cells)


_ALSO = {"answer": "answers"}
_OPTIONS = {"question": "--question", "answers": "--answer", "id": "--id", "type": "--type"}
_FITS = {"id": _names_rows, "type": _groups_rows}
"""Functions that check the cells of a column. A column is found by its heading as `id` or `type` only if its cells
pass this check."""


def _by_heading(field: str, columns: Sequence[str]) -> list[str]:
    """The columns whose heading contains a word of the field in `_IN_A_HEADING`. Only the first word that is in any
    heading is used."""
    spaced = {column: re.sub(r"([a-z])([A-Z])", r"\1 \2", column).casefold() for column in columns}
    words = {column: {word.rstrip("s") for word in re.findall(r"[^\W\d_]+", spaced[column])} for column in columns}
    for name in _IN_A_HEADING[field]:
        if near := [column for column in columns if name in words[column]]:
            return near
    return []
