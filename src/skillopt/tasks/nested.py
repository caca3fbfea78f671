"""Reads and removes values inside JSON values by a dotted path, and reads the text of a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def at(value: Any, dotted: str) -> Any:
    """The value at a path such as `a.b.c` or, in a list, `choices.0.text`; None if there is no such value."""
    for name in dotted.split("."):
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def without(value: Any, dotted: str) -> Any:
    """A copy without the value at `a.b.c`. Objects that are empty after that are removed, too. In a list, the value
    becomes None, so the other values keep their positions."""
    name, _, rest = dotted.partition(".")
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return [without(each, rest) if rest else None if n == int(name) else each for n, each in enumerate(value)]
    if not isinstance(value, Mapping) or name not in value:
        return value
    left = without(value[name], rest) if rest else None
    others = {key: each for key, each in value.items() if key != name}
    return others if left in (None, {}) else {**others, name: left}


def text_of(content: Any) -> str:
    """The text of a message's content, which is a text or parts with text."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    parts = content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else at(part, "text") or at(part, "content") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
