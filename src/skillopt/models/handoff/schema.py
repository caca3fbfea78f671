"""Checks the JSON schema of a letter and the replies to it, and makes an example of a reply."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from skillopt.chat_protocol import JsonObject
from skillopt.skill.trained import NEW_FILES

if TYPE_CHECKING:
    from jsonschema import ValidationError

MOST = 12
"""The maximum number of problems that are listed. If there are more, they usually have one cause."""
LONGEST = 300
"""The maximum number of characters of one problem. Some problems quote long names or long lists of choices."""
_TEXT: JsonObject = {"type": "string"}
_NUMBER: JsonObject = {"type": "number"}
_NEW_FILE = "|".join(map(re.escape, NEW_FILES.values()))
_OURS: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "type": {"type": ["string", "array"], "items": _TEXT},
        "title": _TEXT,
        "description": _TEXT,
        "enum": {"type": "array"},
        "required": {"type": "array", "items": _TEXT},
        "properties": {"type": "object", "additionalProperties": {"$ref": "#"}},
        "additionalProperties": {"type": "boolean"},
        "items": {"$ref": "#"},
        # `^(this|that)$`, of plain text and names of new files: other patterns may take for ever on an unlucky reply
        "pattern": {"type": "string", "pattern": rf"^\^\((?:{_NEW_FILE}|[^()\[\]{{}}*+?.^$\\]|\\[^a-zA-Z0-9])*\)\$\Z"},
        "minItems": {"enum": [0, 1]},
        "maxItems": _NUMBER,
        "minLength": {"type": "number", "maximum": 200},
        "maxLength": _NUMBER,
        "minimum": _NUMBER,
        "maximum": _NUMBER,
    },
}
"""All schemas in SkillOpt's requests fit this schema. A letter may come from elsewhere, so the schema in it is first
checked with this one."""


def excess(schema: Any) -> str:
    """A feature of the schema that SkillOpt's schemas never use; empty if there is none."""
    try:
        return next(iter(problems(schema, _OURS)), "")
    except RecursionError:
        return "it is nested too deeply"


def problems(value: Any, schema: JsonObject) -> list[str]:
    """The reasons why a value does not fit a schema, each with its path in the value; empty if the value fits."""
    from jsonschema import Draft202012Validator  # imported late, because it takes a moment
    from referencing import Registry

    errors = Draft202012Validator(schema, registry=Registry()).iter_errors(value)  # this registry fetches nothing
    listed = [_in_words(error)[:LONGEST] for error in islice(errors, MOST + 1)]
    return [*listed[:MOST], "and more like these"] if len(listed) > MOST else listed


def _in_words(error: ValidationError) -> str:
    """The message of jsonschema, with the path, the value as short JSON, and the limits that the message leaves out."""
    path = error.json_path.removeprefix("$").removeprefix(".")
    text = error.message.replace(repr(error.instance), _shown(error.instance), 1)
    if "Length" in str(error.validator) or "Items" in str(error.validator):
        text += f" (its length is {len(error.instance)}, {error.validator} is {error.validator_value})"
    elif error.validator == "additionalProperties":
        text += f"; known are {', '.join(error.schema.get('properties', {}))}"
    return f"{path}: {text}" if path else text


def example(schema: Any, name: str = "") -> Any:
    """A small value that fits a schema of SkillOpt: its form is right, its content is made up."""
    kind = schema.get("type", "object")
    if schema.get("enum"):
        return schema["enum"][0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {key: example(value, key) for key, value in properties.items()}
    if kind == "array":
        items = schema.get("items", {})
        return [] if items.get("enum") == [] or schema.get("maxItems") == 0 else [example(items, name)]
    if kind != "string":
        return {"number": 0.5, "integer": 1, "boolean": True}.get(str(kind))
    if "pattern" in schema:  # the first alternative is literal text
        return re.split(r"(?<!\\)\|", schema["pattern"].removeprefix("^(").removesuffix(")$"))[0].replace("\\", "")
    # the example is an `add`, which has no anchor
    return "" if name == "anchor" else f"your {name.replace('_', ' ')}".ljust(schema.get("minLength", 0), ".")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
