"""A check that was found in a session or in another tool's eval, and the fields of a task that score it."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import JsonValue

from skillopt.record.base import Record
from skillopt.tasks.base import Json

CheckKind = Literal["exact", "contains", "regex", "command", "file", "rubric"]


class MinedCheck(Record):
    """How an answer is scored. The fields are those of a task (docs/your_data.md)."""

    kind: CheckKind
    values: tuple[str, ...] = ()
    """exact: accepted answers; contains: texts that must all be there; regex: patterns, of which one must match;
    command: the words of the command line; file: its path and its content; rubric: what a judge looks for."""
    unwanted: tuple[str, ...] = ()
    """contains: texts that must not be there."""


def check_fields(check: MinedCheck) -> Json:
    """The fields of a task that make it scored by this check."""
    values: list[JsonValue] = list(check.values)
    if check.kind == "contains" and check.unwanted:
        return {"scoring": "regex", "answers": [_pattern(check)], "search": True}
    fields: dict[str, Json] = {
        "exact": {"answers": values},
        "contains": {"answers": values, "every": True},
        "regex": {"answers": values, "search": True},
        "command": {"check": values, "workspace": {}},
        "file": {"expected": {"".join(check.values[:1]): "\n".join(check.values[1:])}, "workspace": {}},
        "rubric": {"rubric": "\n".join(check.values)},
    }
    return {"scoring": {"file": "files", "rubric": "judge"}.get(check.kind, check.kind), **fields[check.kind]}


def _pattern(check: MinedCheck) -> str:
    """A pattern for outputs with all of the wanted texts and none of the unwanted, as whole words."""
    wanted = "".join(rf"(?=.*(?<![\w-]){re.escape(text)}(?!\w))" for text in check.values)
    unwanted = "".join(rf"(?!.*(?<![\w-]){re.escape(text)}(?!\w))" for text in check.unwanted)
    return rf"\A{wanted}{unwanted}"
