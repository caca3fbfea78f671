"""As much of JSON Schema as our requests use: what is wrong with a value, and an example of a right one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST = 12
"""Problems that are listed; a reply with more of them has one cause."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def problems(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """What does not fit, each with its place in the value; empty where all does."""
    found = list(_problems(value, schema, ""))
    return [*found[:MOST], f"and {len(found) - MOST} more like these"] if len(found) > MOST else found


def _problems(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    where = f"{at}: " if at else ""
    allowed = _names(schema)
    if allowed and not any(_is(value, name) for name in allowed):
        yield f"{where}must be {_either(allowed)}, and is {_shown(value)}"
        return
    if "enum" in schema and not any(value == each and type(value) is type(each) for each in schema["enum"]):
        yield f"{where}{_shown(value)} is not one of {', '.join(_shown(each) for each in schema['enum'])}"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{where}{_shown(value)} does not fit the pattern {schema['pattern']}"
        yield from _length(len(value), schema, where, "Length", "characters")
    elif isinstance(value, list):
        yield from _length(len(value), schema, where, "Items", "entries")
        for number, each in enumerate(value):
            yield from _problems(each, schema.get("items", {}), f"{at}[{number}]")
    elif isinstance(value, dict):
        yield from _object(value, schema, at, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{where}{value} is below {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{where}{value} is above {schema['maximum']}"


def _object(value: dict[str, Any], schema: Mapping[str, Any], at: str, where: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}{_shown(name)} is missing"
    for name, inner in value.items():
        if name in known:
            yield from _problems(inner, known[name], f"{at}.{name}" if at else name)
        elif schema.get("additionalProperties") is False:
            yield f"{where}{_shown(name)} is not a known key; known are {', '.join(known)}"


def _length(size: int, schema: Mapping[str, Any], where: str, what: str, unit: str) -> Iterator[str]:
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}", size)
    if size < least:
        yield f"{where}has {size} {unit}, and needs at least {least}"
    if size > most:
        yield f"{where}has {size} {unit}, and may have at most {most}"


def example(schema: Mapping[str, Any], name: str = "") -> Any:
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


def _example_text(schema: Mapping[str, Any], name: str) -> str:
    if "pattern" in schema:  # ours are alternatives, of which the first is literal
        inner = str(schema["pattern"]).removeprefix("^(").removesuffix(")$")
        return re.split(r"(?<!\\)\|", inner)[0].replace("\\", "")
    if name == "anchor":  # an addition, which the example shows, has none
        return ""
    text = f"your {name.replace('_', ' ')}" if name else "your text"
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", 200)]


def _holds(schema: Mapping[str, Any]) -> bool:
    """May the list hold anything? Not where its entries are chosen from nothing."""
    items = schema.get("items", {})
    return bool(schema.get("maxItems", 1)) and items.get("enum") != []


def _names(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    whole = name == "integer" and isinstance(value, float) and value.is_integer()
    return whole or isinstance(value, _TYPES.get(name, (object,)))


def _either(names: list[str]) -> str:
    return " or ".join(f"{'an' if name[0] in 'aeiou' else 'a'} {name}" if name != "null" else "null" for name in names)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
