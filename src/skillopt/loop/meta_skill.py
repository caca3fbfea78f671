"""Meta skill, the optimizer's memory: notes across epochs for later reflection, never put into the skill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skillopt import prompts
from skillopt.analysts.shown import block, data_line
from skillopt.core.context import Context
from skillopt.models.structured import Answer, ask, text_schema

LONGEST_MEMORY = 6000
"""Characters; longer notes are asked for again."""


async def meta_skill(memory: str, records: Sequence[dict[str, Any]], ctx: Context) -> Answer[str]:
    """New notes from the old ones and what became of the epoch's edits; the old ones stay where none come."""
    lines = [
        data_line(
            {"step": r["step"], "verdict": r["verdict"], "val": [r["val_before"], r["val_after"]], "edits": r["edits"]}
        )
        for r in records
    ]
    user = "\n\n".join(part for part in (block("memory", memory), block("epoch", "\n".join(lines))) if part)
    messages = [
        {"role": "system", "content": prompts.load("meta_skill", ctx.config.gradient.prompts_dir)},
        {"role": "user", "content": user or "(nothing)"},
    ]
    label = f"{ctx.config.train.seed}/meta_skill/{ctx.epoch}"
    return await ask(ctx.optimizer, messages, text_schema("meta_skill", "memory"), _check, label=label)


def _check(value: Any) -> str:
    memory = value.get("memory") if isinstance(value, dict) else None
    if not isinstance(memory, str) or not memory.strip():
        raise ValueError("it is not an object with the text field memory")
    if len(memory) > LONGEST_MEMORY:
        raise ValueError(f"memory is longer than {LONGEST_MEMORY} characters")
    return memory.strip().encode("utf-8", "replace").decode()
