"""The form of each reply, as a JSON schema whose name is the stage. Reasons come before the text they lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from skillopt.models.base import Schema

_TEXT: dict[str, JsonValue] = {"type": "string"}
_OP: dict[str, JsonValue] = {"type": "string", "enum": ["add", "modify", "delete"]}


def reflect_schema(stage: str, ids: Sequence[str], most: int, files: Mapping[str, JsonValue] | None = None) -> Schema:
    """Ids and ops are enums: a small model then cannot cite what does not exist. `files` says which files an edit of a
    package may name; edits of one document name none."""
    cited = _some_of(ids)
    pattern = object_schema({"name": _TEXT, "cause": _TEXT, "trajectory_ids": cited})
    edit = _edit({"pattern": _TEXT, "rationale": _TEXT, "trajectory_ids": cited}, files)
    return Schema(
        name=stage,
        body=object_schema({"job": _TEXT, "patterns": _array(pattern), "edits": {**_array(edit), "maxItems": most}}),
    )


def merge_schema(ids: Sequence[str], most: int, files: Sequence[str] = ()) -> Schema:
    """Every merged edit names those that it replaces; contradictions are named by their two ids. `files` are those of a
    package's edits."""
    one: dict[str, JsonValue] = {"type": "string", "enum": list(ids)}
    file: dict[str, JsonValue] = {"type": "string", "enum": list(files)}
    edit = _edit({"ids": _some_of(ids), "pattern": _TEXT, "rationale": _TEXT}, file if files else None)
    conflict = object_schema({"reason": _TEXT, "a": one, "b": one})
    return Schema(
        name="merge", body=object_schema({"edits": {**_array(edit), "maxItems": most}, "conflicts": _array(conflict)})
    )


def text_schema(stage: str, field: str) -> Schema:
    """One text, after the reasons for it."""
    return Schema(name=stage, body=object_schema({"reason": _TEXT, field: _TEXT}))


def _edit(reasons: dict[str, JsonValue], file: Mapping[str, JsonValue] | None) -> dict[str, JsonValue]:
    named: dict[str, JsonValue] = {"file": dict(file)} if file else {}
    return object_schema({**reasons, "op": _OP, **named, "section": _TEXT, "anchor": _TEXT, "text": _TEXT})


def _some_of(ids: Sequence[str]) -> dict[str, JsonValue]:
    return _array({"type": "string", "enum": list(ids)})


def _array(items: JsonValue) -> dict[str, JsonValue]:
    return {"type": "array", "items": items}


def object_schema(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
