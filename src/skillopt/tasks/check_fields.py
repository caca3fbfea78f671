"""A check that was taken from a session or from another tool's eval, and its conversion to fields of a task."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import JsonValue

from skillopt.record.base import Record
from skillopt.tasks.base import Json

CheckKind = Literal["exact", "contains", "regex", "command", "file", "rubric"]


class MinedCheck(Record):
    """A check of answers. `check_fields` converts it to fields of a task (docs/your_data.md)."""

    kind: CheckKind
    values: tuple[str, ...] = ()
    """The values of the check, by its kind. `exact`: accepted answers. `contains`: texts, all of which the answer must
    contain. `regex`: patterns, one of which must match. `command`: the words of the command line. `file`: the file's
    path and its content. `rubric`: what the judge looks for."""
    unwanted: tuple[str, ...] = ()
    """For the kind `contains`: texts that the answer must not contain."""


def check_fields(check: MinedCheck) -> Json:
    """The fields of a task that is scored by this check."""
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
    """A regular expression that matches an output if it contains all wanted texts and no unwanted text. Only whole
    words count."""
    wanted = "".join(rf"(?=.*(?<![\w-]){re.escape(text)}(?!\w))" for text in check.values)
    unwanted = "".join(rf"(?!.*(?<![\w-]){re.escape(text)}(?!\w))" for text in check.unwanted)
    return rf"\A{wanted}{unwanted}"
