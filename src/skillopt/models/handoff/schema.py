"""A JSON schema: what is wrong with a value, in words, and an example of a right one."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from skillopt.models.base import JsonSchema

if TYPE_CHECKING:
    from jsonschema import ValidationError

MOST = 12
"""Problems that are listed; a reply with more of them has one cause."""
LONGEST = 300
"""Characters of one problem: a message quotes names and choices."""


def problems(value: Any, schema: JsonSchema) -> list[str]:
    """What does not fit, each with its place in the value; empty if everything fits."""
    from jsonschema import Draft202012Validator  # not needed to start, and takes a moment to import
    from referencing import Registry

    errors = Draft202012Validator(schema, registry=Registry()).iter_errors(value)  # this registry fetches nothing
    listed = [_in_words(error)[:LONGEST] for error in islice(errors, MOST + 1)]
    return [*listed[:MOST], "and more like these"] if len(listed) > MOST else listed


def _in_words(error: ValidationError) -> str:
    """jsonschema's message with the place, with the value as short JSON, and with the numbers that it leaves out."""
    place = error.json_path.removeprefix("$").removeprefix(".")
    text = error.message.replace(repr(error.instance), _shown(error.instance), 1)
    if "Length" in str(error.validator) or "Items" in str(error.validator):
        text += f" (its length is {len(error.instance)}, {error.validator} is {error.validator_value})"
    elif error.validator == "additionalProperties":
        text += f"; known are {', '.join(error.schema.get('properties', {}))}"
    return f"{place}: {text}" if place else text


def example(schema: JsonSchema, name: str = "") -> Any:
    """A small value that fits: its form is right, what it says is made up."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = next(iter(_names(schema)), "object")
    if kind == "object":
        required = schema.get("required", schema.get("properties", {}))
        return {key: example(schema.get("properties", {}).get(key, {}), key) for key in required}
    if kind == "array":
        return [example(schema.get("items", {}), name)] * max(1, schema.get("minItems", 1)) if _holds(schema) else []
    if kind in {"integer", "number"}:
        middle = 0.5 if kind == "number" else 1
        return min(max(middle, schema.get("minimum", middle)), schema.get("maximum", middle))
    if kind == "string":
        return _example_text(schema, name)
    return True if kind == "boolean" else None


def _example_text(schema: JsonSchema, name: str) -> str:
    if "pattern" in schema:  # ours are alternatives, of which the first is literal
        inner = str(schema["pattern"]).removeprefix("^(").removesuffix(")$")
        return re.split(r"(?<!\\)\|", inner)[0].replace("\\", "")
    if name == "anchor":  # an addition, which the example shows, has none
        return ""
    text = f"your {name.replace('_', ' ')}" if name else "your text"
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", 200)]


def _holds(schema: JsonSchema) -> bool:
    """May the list hold anything? Not where its entries are chosen from nothing."""
    items = schema.get("items", {})
    return bool(schema.get("maxItems", 1)) and items.get("enum") != []


def _names(schema: JsonSchema) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
