"""What the schema of a letter may ask for. A letter may be a file from elsewhere, and its schema is worked through."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from skillopt.skill.trained import NEW_FILES

_DEEPEST = 30
_META = re.compile(r"[()\[\]{}*+?.^$\\]")


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def _harmless(pattern: Any) -> bool:
    """Is it `^(this|that)$`, of plain text and names of new files? Others may take for ever on an unlucky reply."""
    if not isinstance(pattern, str) or not (pattern.startswith("^(") and pattern.endswith(")$")):
        return False
    inner = pattern[2:-2]
    for name in NEW_FILES.values():
        inner = inner.replace(name, "")
    return not _META.search(re.sub(r"\\[^a-zA-Z0-9]", "", inner))


_VALUES: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) or _texts(value),
    "title": lambda value: isinstance(value, str),
    "description": lambda value: isinstance(value, str),
    "enum": lambda value: isinstance(value, list),
    "required": _texts,
    "properties": lambda value: isinstance(value, dict),
    "additionalProperties": lambda value: isinstance(value, bool),
    "items": lambda value: isinstance(value, dict),
    "pattern": _harmless,
    "minItems": lambda value: value in (0, 1),
    "maxItems": _number,
    "minLength": lambda value: _number(value) and value <= 200,
    "maxLength": _number,
    "minimum": _number,
    "maximum": _number,
}
"""The keywords that our requests use, and whether a value is one that costs little. An example repeats `minItems`
entries, and those of lists in lists multiply."""


def excess(schema: Any, depth: int = 0) -> str:
    """What a schema asks for that is not worked through; empty if there is nothing."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return "a schema that is not an object, or is nested too deeply"
    for key, value in schema.items():
        if key not in _VALUES or not _VALUES[key](value):
            return f"{key[:40]}: {str(value)[:60]}"
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return next((found for each in below if (found := excess(each, depth + 1))), "")
