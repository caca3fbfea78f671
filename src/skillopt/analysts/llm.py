"""The optimizer model as analyst: shallow (failures), success, and deep reflection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from skillopt import prompts
from skillopt.analysts.base import Dropped, Kind, Memory, Minibatch, Patch, Pattern
from skillopt.config import Config
from skillopt.envs.base import Trajectory
from skillopt.models.base import Message, Schema
from skillopt.models.call import Caller
from skillopt.models.structured import ask
from skillopt.skill import Edit, Skill

LONGEST_TEXT = 4000
"""Characters of one task or output that an analyst sees; the middle of longer ones is left out."""


class LLMAnalyst:
    name = "llm"
    kinds: tuple[Kind, ...] = ("failure", "success", "deep")
    needs_optimizer = True

    async def propose(
        self, skill: Skill, minibatch: Minibatch, memory: Memory, optimizer: Caller, config: Config
    ) -> Patch:
        stage = "deep_reflect" if minibatch.kind == "deep" else "reflect"
        ids = [trajectory.id for trajectory in minibatch.trajectories]
        schema = reflect_schema(stage, ids, config.gradient.edits_per_minibatch)
        messages = reflect_messages(stage, skill, minibatch, memory)
        answer = await ask(optimizer, messages, schema, _fields, label=f"{config.train.seed}/{stage}/{minibatch.id}")
        patch = Patch(id=minibatch.id, source=f"llm/{minibatch.kind}", trajectory_ids=tuple(ids))
        if answer.value is None:
            return patch.model_copy(update={"lost": answer.lost, "unreachable": answer.unreachable})
        raw_patterns, raw_edits = answer.value
        edits, dropped = _read_edits(raw_edits, ids, patch.source, config.gradient.edits_per_minibatch)
        found = {"patterns": _read_patterns(raw_patterns, ids), "edits": edits, "dropped": dropped}
        return patch.model_copy(update=found)


def reflect_messages(stage: str, skill: Skill, minibatch: Minibatch, memory: Memory) -> list[Message]:
    """What stays the same over a step comes first: instructions, skill, memory; the trajectories come last."""
    parts = [
        block("skill", skill.text),
        block("memory", memory.notes),
        block("rejected", "\n".join(_rejected_line(entry.edit) for entry in memory.rejected)),
        f"Cause to look into: {json.dumps(minibatch.pattern)}" if minibatch.pattern else "",
        block("trajectories", "\n".join(trajectory_line(t) for t in minibatch.trajectories)),
    ]
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": prompts.load(stage)}, {"role": "user", "content": user}]


def reflect_schema(stage: str, ids: Sequence[str], most: int) -> Schema:
    """Ids and ops are enums: a small model then cannot cite what does not exist."""
    cited = {"type": "array", "items": {"type": "string", "enum": list(ids)}}
    text = {"type": "string"}
    pattern = _object({"name": text, "cause": text, "trajectory_ids": cited})
    edit = _object(
        {
            "op": {"type": "string", "enum": ["add", "modify", "delete"]},
            "section": text,
            "anchor": text,
            "text": text,
            "rationale": text,
            "pattern": text,
            "trajectory_ids": cited,
            "impact": {"type": "number"},
        }
    )
    edits = {"type": "array", "items": edit, "maxItems": most}
    return Schema(name=stage, body=_object({"patterns": {"type": "array", "items": pattern}, "edits": edits}))


def trajectory_line(trajectory: Trajectory) -> str:
    """One trajectory as one line of JSON; no text in it can end the block that it stands in."""
    row: dict[str, Any] = {"id": trajectory.id, "task": trim_middle(trajectory.input)}
    turns = [message for message in trajectory.messages if message.get("role") != "system"]
    if len(turns) > 2:
        row["transcript"] = trim_middle("\n".join(f"{m.get('role')}: {m.get('content')}" for m in turns[1:]))
    row |= {
        "output": trim_middle(trajectory.output),
        "score": round(trajectory.score.soft, 3) if trajectory.score.hard < 1 else 1,
        "feedback": trim_middle(trajectory.score.feedback),
    }
    return data_line(row)


def data_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False).replace("<", "\\u003c")


def block(tag: str, text: str) -> str:
    return f"<{tag}>\n{text.strip(chr(10))}\n</{tag}>" if text.strip() else ""


def trim_middle(text: str, most: int = LONGEST_TEXT) -> str:
    """Cut the middle out of a long text, and say so."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _rejected_line(edit: Edit) -> str:
    return data_line({"op": edit.op, "section": edit.section, "anchor": edit.anchor, "text": edit.text})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _fields(value: Any) -> tuple[list[Any], list[Any]]:
    if not isinstance(value, dict) or not isinstance(value.get("edits"), list):
        raise ValueError("it is not an object with patterns and edits")
    patterns = value.get("patterns")
    return patterns if isinstance(patterns, list) else [], value["edits"]


def _read_edits(raw: list[Any], ids: list[str], source: str, most: int) -> tuple[tuple[Edit, ...], tuple[Dropped, ...]]:
    edits: list[Edit] = []
    dropped: list[Dropped] = []
    for row in raw:
        shown = dict(row) if isinstance(row, dict) else {"value": str(row)[:200]}
        if len(edits) == most:
            dropped.append(Dropped(kind="too_many", reason=f"more than {most} edits in one reply", edit={}))
            continue
        try:
            edit = Edit.model_validate(row)
        except ValidationError as error:
            reason = str(error.errors()[0]["msg"])
            dropped.append(Dropped(kind="malformed", reason=reason, edit={k: str(v)[:500] for k, v in shown.items()}))
            continue
        cited = tuple(sorted(set(edit.trajectory_ids) & set(ids)))
        if not cited:
            dropped.append(Dropped(kind="no_trajectory", reason="cites no trajectory that was shown", edit=shown))
            continue
        own: dict[str, Any] = {"trajectory_ids": cited, "source": source, "id": ""}
        if edit.op == "add":
            own["anchor"] = ""
        edits.append(edit.model_copy(update=own))
    return tuple(edits), tuple(dropped)


def _read_patterns(raw: list[Any], ids: list[str]) -> tuple[Pattern, ...]:
    patterns = []
    for row in raw[: len(ids)]:
        try:
            pattern = Pattern.model_validate(row)
        except ValidationError:
            continue
        cited = tuple(sorted(set(pattern.trajectory_ids) & set(ids)))
        if cited:
            patterns.append(pattern.model_copy(update={"trajectory_ids": cited}))
    return tuple(patterns)
