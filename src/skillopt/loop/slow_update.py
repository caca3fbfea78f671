"""Slow update, the momentum: two epochs' skills on the same items, and guidance that keeps the progress."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from skillopt import prompts
from skillopt.core.batches import in_id_order
from skillopt.core.context import Context
from skillopt.core.rollout import begin_ahead, require_most, rollout, scored
from skillopt.edits.risk import new_risk
from skillopt.envs.base import Item, RolloutError, Trajectory
from skillopt.letters.case import CaseFile, Pair
from skillopt.letters.compose import slow_update_letter
from skillopt.letters.replies import text_of
from skillopt.letters.schemas import text_schema
from skillopt.models.call import gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.skill import Skill

Class = Literal["improved", "regressed", "persistent_fail", "stable_success"]
_OPEN = ("regressed", "persistent_fail")
"""What guidance is for: where no item is one of these, none is asked for."""
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
    """Why there is no guidance; empty if there is."""
    unusable: tuple[str, ...] = ()
    """What was wrong with replies that could not be used."""


async def slow_update(
    before: Skill, after: Skill, versions: tuple[int, int], case: CaseFile, ctx: Context
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
    counts: dict[str, int] = dict(Counter(str(row.class_) for row in rows))
    frame |= {"equal": False, "counts": counts, "rows": tuple(rows)}
    if any(row.class_ in _OPEN for row in rows):
        answer = await _guidance(before, after, rows, trajectories, case, ctx)
        frame |= {"guidance": answer.value or "", "lost": answer.lost, "unusable": answer.unusable}
    return Comparison(**frame), list(trajectories.values())


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


async def _guidance(
    before: Skill, after: Skill, rows: list[Row], trajectories: dict[str, Trajectory], case: CaseFile, ctx: Context
) -> CheckedReply[str]:
    pairs = [
        Pair(change=row.class_, before=trajectories[row.before_id], after=trajectories[row.after_id]) for row in rows
    ]
    letter = slow_update_letter(
        prompts.load("slow_update", ctx.config.gradient.prompts_dir), case, before, after, pairs
    )
    read = text_of("guidance", LONGEST_GUIDANCE)

    def check(value: Any) -> str:
        guidance = read(value)
        if ctx.config.gradient.review_risky and (risk := new_risk(guidance, after)):
            raise ValueError(f"guidance holds {risk}")
        return guidance

    label = f"{ctx.config.train.seed}/slow_update/{ctx.epoch}"
    return await ask(ctx.optimizer, letter, text_schema("slow_update", "guidance"), check, label=label)
