"""The form of each reply, as a JSON schema whose name is the stage. Reasons come before the text they lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skillopt.models.base import Schema

_TEXT = {"type": "string"}
_OP = {"type": "string", "enum": ["add", "modify", "delete"]}


def reflect_schema(stage: str, ids: Sequence[str], most: int, files: Mapping[str, Any] | None = None) -> Schema:
    """Ids and ops are enums: a small model then cannot cite what does not exist. `files` says which files an edit of a
    package may name; edits of one document name none."""
    cited = _some_of(ids)
    pattern = _object({"name": _TEXT, "cause": _TEXT, "trajectory_ids": cited})
    edit = _object(
        {
            "pattern": _TEXT,
            "rationale": _TEXT,
            "trajectory_ids": cited,
            "op": _OP,
            **({"file": dict(files)} if files else {}),
            "section": _TEXT,
            "anchor": _TEXT,
            "text": _TEXT,
        }
    )
    return Schema(
        name=stage,
        body=_object({"job": _TEXT, "patterns": _array(pattern), "edits": {**_array(edit), "maxItems": most}}),
    )


def merge_schema(ids: Sequence[str], most: int, files: Sequence[str] = ()) -> Schema:
    """Every merged edit names those that it replaces; contradictions are named by their two ids. `files` are those of a
    package's edits."""
    one = {"type": "string", "enum": list(ids)}
    edit = _object(
        {
            "ids": _some_of(ids),
            "pattern": _TEXT,
            "rationale": _TEXT,
            "op": _OP,
            **({"file": {"type": "string", "enum": list(files)}} if files else {}),
            "section": _TEXT,
            "anchor": _TEXT,
            "text": _TEXT,
        }
    )
    conflict = _object({"reason": _TEXT, "a": one, "b": one})
    return Schema(
        name="merge", body=_object({"edits": {**_array(edit), "maxItems": most}, "conflicts": _array(conflict)})
    )


def rank_schema(ids: Sequence[str]) -> Schema:
    return Schema(name="rank", body=_object({"reason": _TEXT, "order": _some_of(ids)}))


def text_schema(stage: str, field: str) -> Schema:
    """One text, after the reasons for it."""
    return Schema(name=stage, body=_object({"reason": _TEXT, field: _TEXT}))


def _some_of(ids: Sequence[str]) -> dict[str, Any]:
    return _array({"type": "string", "enum": list(ids)})


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
