"""Asking the optimizer model to merge and to rank edits, where the config wants that (gradient.merge, gradient.rank).

Both are advice: what the model returns is checked, a lost reply leaves things as they were, and is counted like any.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from skillopt import prompts
from skillopt.analysts.base import Patch
from skillopt.analysts.shown import block, data_line
from skillopt.core.context import Context
from skillopt.edits.aggregate import Pool, Pooled, opposite, pool_group
from skillopt.edits.similarity import same_facts
from skillopt.models.base import Message, Schema
from skillopt.models.structured import Answer, ask
from skillopt.skill import Edit, Skill


async def merge(pool: Pool, skill: Skill, ctx: Context) -> tuple[Pool, list[Patch]]:
    """The pool after the model has merged what says the same; the second value records how the asking went."""
    if ctx.config.gradient.merge == "local" or len(pool.edits) < 2:
        return pool, []
    schema = _merge_schema(pool.edits)
    with ctx.timed("merge"):
        answer = await ask(
            ctx.optimizer, _messages("merge", skill, pool, ctx), schema, _edits, label=_label(ctx, "merge")
        )
    by_id = {pooled.edit.id: pooled for pooled in pool.edits}
    for row in answer.value or []:
        group = [by_id[name] for name in sorted(_stands_for(row, by_id)) if name in by_id]
        if merged := _merged(group, row):
            for pooled in group:
                del by_id[pooled.edit.id]
            by_id[merged.edit.id] = merged
    edits = tuple(by_id[name] for name in sorted(by_id))
    return pool.model_copy(update={"edits": edits}), [_record("merge", answer, ctx)]


async def rank(pool: Pool, skill: Skill, ctx: Context) -> tuple[list[str], list[Patch]]:
    """The ids in the model's order; those that it leaves out follow by relevance. Empty where it is not asked."""
    if ctx.config.gradient.rank == "local" or len(pool.edits) < 2:
        return [], []
    ids = [pooled.edit.id for pooled in pool.edits]
    body = _object({"order": {"type": "array", "items": {"type": "string", "enum": ids}}})
    schema = Schema(name="rank", body=body)
    with ctx.timed("rank"):
        answer = await ask(
            ctx.optimizer, _messages("rank", skill, pool, ctx), schema, _order, label=_label(ctx, "rank")
        )
    order = [name for name in dict.fromkeys(answer.value or []) if name in ids]
    return order, [_record("rank", answer, ctx)]


def _stands_for(row: dict[str, Any], by_id: dict[str, Pooled]) -> set[str]:
    """Which edits a merged one replaces: those it names, or those whose trajectories it cites."""
    named = row.get("ids")
    if isinstance(named, list) and named:
        return {str(name) for name in named} & by_id.keys()
    cited = {str(tid) for tid in row.get("trajectory_ids") or []}
    return {name for name, pooled in by_id.items() if set(pooled.edit.trajectory_ids) <= cited}


def _merged(group: Sequence[Pooled], row: dict[str, Any]) -> Pooled | None:
    """One edit for a group, where every pair may say the same and the new text adds nothing to them."""
    if len(group) < 2 or len({(p.edit.op, p.edit.anchor) for p in group}) > 1:
        return None
    try:
        text = Edit.model_validate({**row, "op": group[0].edit.op}).text
    except ValidationError:
        return None
    texts = [pooled.edit.text for pooled in group]
    if not text.strip() or not all(same_facts(a, b) for a, b in combinations([*texts, text], 2) if a != b):
        return None
    if any(opposite(a.edit, b.edit) for a, b in combinations(group, 2)):
        return None
    pooled = pool_group([p.edit for p in group])
    merged = tuple(name for p in group for name in p.merged)
    return pooled.model_copy(update={"edit": pooled.edit.model_copy(update={"text": text}), "merged": merged})


def _messages(stage: str, skill: Skill, pool: Pool, ctx: Context) -> list[Message]:
    lines = [
        data_line({"id": p.edit.id, **_shown(p.edit), "support": p.support, "trajectory_ids": p.edit.trajectory_ids})
        for p in pool.edits
    ]
    user = "\n\n".join(part for part in (block("skill", skill.text), block("edits", "\n".join(lines))) if part)
    prompt = prompts.load(stage, ctx.config.gradient.prompts_dir)
    return [{"role": "system", "content": prompt}, {"role": "user", "content": user}]


def _shown(edit: Edit) -> dict[str, str]:
    return edit.model_dump(mode="json", include={"op", "section", "anchor", "text", "rationale", "pattern"})


def _merge_schema(edits: Sequence[Pooled]) -> Schema:
    cited = sorted({tid for pooled in edits for tid in pooled.edit.trajectory_ids})
    text = {"type": "string"}
    edit = _object(
        {
            "ids": {"type": "array", "items": {"type": "string", "enum": [pooled.edit.id for pooled in edits]}},
            "op": {"type": "string", "enum": ["add", "modify", "delete"]},
            "section": text,
            "anchor": text,
            "text": text,
            "rationale": text,
            "pattern": text,
            "trajectory_ids": {"type": "array", "items": {"type": "string", "enum": cited}},
            "impact": {"type": "number"},
        }
    )
    return Schema(name="merge", body=_object({"edits": {"type": "array", "items": edit}}))


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _edits(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, dict) or not isinstance(value.get("edits"), list):
        raise ValueError("it is not an object with edits")
    return [row for row in value["edits"] if isinstance(row, dict)]


def _order(value: Any) -> list[str]:
    if not isinstance(value, dict) or not isinstance(value.get("order"), list):
        raise ValueError("it is not an object with the list order")
    return [str(name) for name in value["order"]]


def _label(ctx: Context, stage: str) -> str:
    return f"{ctx.config.train.seed}/{stage}/{ctx.step:04d}"


def _record(stage: str, answer: Answer[Any], ctx: Context) -> Patch:
    return Patch(
        id=f"{ctx.step:04d}-{stage}",
        source=f"llm/{stage}",
        trajectory_ids=(),
        lost=answer.lost,
        unreachable=answer.unreachable,
        unusable=answer.unusable,
    )
