"""The optimizer model as analyst: shallow (failures), success, and deep reflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from skillopt import prompts
from skillopt.analysts.base import Dropped, Kind, Memory, Minibatch, Patch, Pattern
from skillopt.analysts.shown import block, data_line, trajectory_lines
from skillopt.config import Config
from skillopt.models.base import Message, Schema
from skillopt.models.call import Caller
from skillopt.models.structured import ask
from skillopt.skill import Edit, Skill


class LLMAnalyst:
    name = "llm"
    kinds: tuple[Kind, ...] = ("failure", "success", "deep")
    needs_optimizer = True

    async def propose(
        self, skill: Skill, minibatch: Minibatch, memory: Memory, optimizer: Caller, config: Config
    ) -> Patch:
        stage = "deep_reflect" if minibatch.kind == "deep" else "reflect"
        gradient = config.gradient
        ids = [trajectory.id for trajectory in minibatch.trajectories]
        schema = reflect_schema(stage, ids, gradient.edits_per_minibatch)
        prompt = prompts.load("success" if minibatch.kind == "success" else stage, gradient.prompts_dir)
        messages = reflect_messages(prompt, skill, minibatch, memory, gradient.prompt_tokens)
        answer = await ask(optimizer, messages, schema, _fields, label=f"{config.train.seed}/{stage}/{minibatch.id}")
        patch = Patch(
            id=minibatch.id, source=f"llm/{minibatch.kind}", trajectory_ids=tuple(ids), unusable=answer.unusable
        )
        if answer.value is None:
            return patch.model_copy(update={"lost": answer.lost, "unreachable": answer.unreachable})
        raw_patterns, raw_edits = answer.value
        edits, dropped = _read_edits(raw_edits, ids, patch.source, gradient.edits_per_minibatch)
        found = {"patterns": _read_patterns(raw_patterns, ids), "edits": edits, "dropped": dropped}
        return patch.model_copy(update=found)


def reflect_messages(
    prompt: str, skill: Skill, minibatch: Minibatch, memory: Memory, budget: int = 12_000
) -> list[Message]:
    """What stays the same over a step comes first: instructions, skill, memory; the trajectories come last."""
    parts = [
        block("skill", skill.text),
        block("known_patterns", "\n".join(f"- {name}: {what}" for name, what in minibatch.known_patterns.items())),
        block("memory", memory.notes),
        block("rejected", "\n".join(_rejected_line(entry.edit) for entry in memory.rejected)),
        f"Cause to look into: {data_line(minibatch.pattern)}" if minibatch.pattern else "",
        block("trajectories", trajectory_lines(minibatch.trajectories, budget)),
    ]
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": prompt}, {"role": "user", "content": user}]


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
