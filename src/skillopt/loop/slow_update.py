"""Slow update, the momentum: two epochs' skills on the same items, and guidance that keeps what was won."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from skillopt import prompts
from skillopt.analysts.shown import block, data_line, trim_middle
from skillopt.core.batches import in_id_order
from skillopt.core.context import Context
from skillopt.core.rollout import begin_ahead, require_most, rollout, scored
from skillopt.edits.risk import new_risk
from skillopt.envs.base import Item, RolloutError, Trajectory
from skillopt.models.call import gather_all
from skillopt.models.structured import Answer, ask, text_schema
from skillopt.skill import Skill
from skillopt.skill.edit import unsafe
from skillopt.skill.tokens import count_tokens

Class = Literal["improved", "regressed", "persistent_fail", "stable_success"]
LONGEST_GUIDANCE = 600
"""Tokens; longer guidance is refused, like an edit that is too large."""


class Row(BaseModel):
    """One item under both skills."""

    model_config = ConfigDict(frozen=True)

    item_id: str
    class_: Class
    before: float
    after: float
    before_id: str
    after_id: str


class Comparison(BaseModel):
    """The longitudinal comparison of two epochs' skills."""

    model_config = ConfigDict(frozen=True)

    epoch: int
    before_version: int
    after_version: int
    equal: bool
    """The epoch changed nothing, so there was nothing to compare."""
    counts: dict[str, int] = {}
    rows: tuple[Row, ...] = ()
    guidance: str = ""
    lost: str = ""
    """Why no guidance came of it; empty when it did."""
    unusable: tuple[str, ...] = ()
    """What was wrong with replies that could not be used."""


async def slow_update(
    before: Skill, after: Skill, versions: tuple[int, int], ctx: Context
) -> tuple[Comparison, list[Trajectory]]:
    """Compare the previous epoch's skill with the current one and ask for guidance."""
    frame: dict[str, Any] = {"epoch": ctx.epoch, "before_version": versions[0], "after_version": versions[1]}
    if before.hash == after.hash:
        return Comparison(**frame, equal=True, lost="both epochs ended with the same skill"), []
    items = _sample(ctx)
    old, new = await gather_all(
        rollout(skill, items, ctx, tag=_tag(name, ctx), stage="slow_update")
        for name, skill in (("before", before), ("after", after))
    )
    require_most([*old, *new], "slow update")
    rows = _rows(old, new)
    trajectories = {t.id: t for t in [*scored(old), *scored(new)]}
    answer = await _guidance(after, rows, trajectories, ctx)
    counts: dict[str, int] = dict(Counter(str(row.class_) for row in rows))
    told: dict[str, Any] = {"guidance": answer.value or "", "lost": answer.lost, "unusable": answer.unusable}
    comparison = Comparison(**frame, equal=False, counts=counts, rows=tuple(rows), **told)
    return comparison, list(trajectories.values())


def begin_comparison(before: Skill, ctx: Context) -> None:
    """The previous epoch's skill can be rolled out before the current epoch is at its end."""
    begin_ahead(before, _sample(ctx), ctx, tag=_tag("before", ctx), stage="slow_update")


def _sample(ctx: Context) -> list[Item]:
    items = ctx.env.items("train")
    places = in_id_order(items)
    drawn = ctx.rng("slow_update").sample(places, min(len(places), ctx.config.optimizer.slow_update_samples))
    return [items[place] for place in drawn]


def _tag(name: str, ctx: Context) -> str:
    return f"slow-{ctx.epoch:02d}-{name}"


def _rows(old: list[Trajectory | RolloutError], new: list[Trajectory | RolloutError]) -> list[Row]:
    """Only items that both skills were measured on."""
    rows = []
    for a, b in zip(old, new, strict=True):
        if isinstance(a, Trajectory) and isinstance(b, Trajectory):
            rows.append(
                Row(
                    item_id=a.item_id,
                    class_=classify(a.score.hard, b.score.hard),
                    before=a.score.hard,
                    after=b.score.hard,
                    before_id=a.id,
                    after_id=b.id,
                )
            )
    return sorted(rows, key=lambda row: row.item_id)


def classify(before: float, after: float) -> Class:
    if after >= 1:
        return "stable_success" if before >= 1 else "improved"
    return "regressed" if before >= 1 else "persistent_fail"


async def _guidance(skill: Skill, rows: list[Row], trajectories: dict[str, Trajectory], ctx: Context) -> Answer[str]:
    lines = []
    for row in sorted(rows, key=lambda row: (_URGENCY[row.class_], row.item_id)):
        after = trajectories[row.after_id]
        shown = {"class": row.class_, "task": trim_middle(after.input, 250), "output": trim_middle(after.output, 250)}
        lines.append(data_line({**shown, "feedback": trim_middle(after.score.feedback, 250)}))
    user = "\n\n".join(
        part
        for part in (
            block("skill", skill.text),
            block("guidance", skill.guidance),
            block("comparison", "\n".join(lines)),
        )
        if part
    )
    prompt = prompts.load("slow_update", ctx.config.gradient.prompts_dir)
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": user}]
    label = f"{ctx.config.train.seed}/slow_update/{ctx.epoch}"

    def check(value: Any) -> str:
        guidance = _check(value)
        if ctx.config.gradient.review_risky and (risk := new_risk(guidance, skill)):
            raise ValueError(f"guidance holds {risk}")
        return guidance

    return await ask(ctx.optimizer, messages, text_schema("slow_update", "guidance"), check, label=label)


_URGENCY: dict[Class, int] = {"regressed": 0, "persistent_fail": 1, "improved": 2, "stable_success": 3}


def _check(value: Any) -> str:
    guidance = value.get("guidance") if isinstance(value, dict) else None
    if not isinstance(guidance, str) or not guidance.strip():
        raise ValueError("it is not an object with the text field guidance")
    if problem := unsafe(guidance):
        raise ValueError(f"guidance {problem[1]}")
    if len(guidance) > 20 * LONGEST_GUIDANCE or count_tokens(guidance) > LONGEST_GUIDANCE:
        raise ValueError(f"guidance is longer than {LONGEST_GUIDANCE} tokens")
    return guidance.strip()
