"""Slow update, the momentum: two epochs' skills on the same items, and guidance that keeps the progress."""

from __future__ import annotations

from collections import Counter
from typing import Any

from skillopt.models.call import gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.record.step import ComparedItem, EpochComparison, ItemClass
from skillopt.skill import Skill
from skillopt.tasks.base import Item, RolloutError, Trajectory
from skillopt.training import prompts
from skillopt.training.batches import in_id_order
from skillopt.training.context import Context
from skillopt.training.edits.risk import new_risk
from skillopt.training.requests.compose import slow_update_request
from skillopt.training.requests.context import OptimizerContext, Pair
from skillopt.training.requests.replies import says_nothing, text_of
from skillopt.training.requests.schemas import text_schema
from skillopt.training.rollout import require_most, rollout, scored

_EQUAL = "both epochs ended with the same skill"
_OPEN = ("regressed", "persistent_fail")
"""Guidance is for these items; without any, it is not asked for."""
LONGEST_GUIDANCE = 600
"""Tokens; longer guidance is refused, like an edit that is too large."""


async def slow_update(
    before: Skill, after: Skill, versions: tuple[int, int], knowledge: OptimizerContext, ctx: Context
) -> tuple[EpochComparison, list[Trajectory]]:
    """Compare the previous epoch's skill with the current one and ask for guidance."""
    equal = before.hash == after.hash
    comparison = EpochComparison(
        epoch=ctx.epoch,
        before_version=versions[0],
        after_version=versions[1],
        equal=equal,
        lost=_EQUAL if equal else "",
    )
    if equal:
        return comparison, []
    items = _sample(ctx)
    old, new = await gather_all(
        rollout(skill, items, ctx, tag=f"slow-{ctx.epoch:02d}-{name}", stage="slow_update")
        for name, skill in (("before", before), ("after", after))
    )
    require_most([*old, *new], "slow update")
    rows = _rows(old, new)
    trajectories = {t.id: t for t in [*scored(old), *scored(new)]}
    counts: dict[str, int] = dict(Counter(str(row.class_) for row in rows))
    comparison = comparison.model_copy(update={"counts": counts, "rows": tuple(rows)})
    if any(row.class_ in _OPEN for row in rows):
        answer = await _guidance(before, after, rows, trajectories, knowledge, ctx)
        reply = {"guidance": answer.value or "", "lost": answer.lost, "unusable": answer.unusable}
        comparison = comparison.model_copy(update=reply)
    return comparison, list(trajectories.values())


def _sample(ctx: Context) -> list[Item]:
    items = ctx.env.items("train")
    positions = in_id_order(items)
    drawn = ctx.rng("slow_update").sample(positions, min(len(positions), ctx.config.optimizer.slow_update_samples))
    return [items[position] for position in drawn]


def _rows(old: list[Trajectory | RolloutError], new: list[Trajectory | RolloutError]) -> list[ComparedItem]:
    """Only items that both skills were measured on."""
    rows = []
    for a, b in zip(old, new, strict=True):
        if isinstance(a, Trajectory) and isinstance(b, Trajectory):
            rows.append(
                ComparedItem(
                    item_id=a.item_id,
                    class_=classify(a.score.hard, b.score.hard),
                    before=a.score.hard,
                    after=b.score.hard,
                    before_id=a.id,
                    after_id=b.id,
                )
            )
    return sorted(rows, key=lambda row: row.item_id)


def classify(before: float, after: float) -> ItemClass:
    if after >= 1:
        return "stable_success" if before >= 1 else "improved"
    return "regressed" if before >= 1 else "persistent_fail"


async def _guidance(
    before: Skill,
    after: Skill,
    rows: list[ComparedItem],
    trajectories: dict[str, Trajectory],
    knowledge: OptimizerContext,
    ctx: Context,
) -> CheckedReply[str]:
    pairs = [
        Pair(change=row.class_, before=trajectories[row.before_id], after=trajectories[row.after_id]) for row in rows
    ]
    request = slow_update_request(
        prompts.load("slow_update", ctx.config.gradient.prompts_dir), knowledge, before, after, pairs
    )
    read = text_of("guidance", LONGEST_GUIDANCE)

    def check(value: Any) -> str:
        guidance = read(value)
        if says_nothing(guidance):
            return ""
        if ctx.config.gradient.review_risky and (risk := new_risk(guidance, after)):
            raise ValueError(f"guidance holds {risk}")
        return guidance

    label = f"{ctx.config.train.seed}/slow_update/{ctx.epoch}"
    return await ask(ctx.optimizer, request, text_schema("slow_update", "guidance"), check, label=label)
