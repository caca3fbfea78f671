"""Measuring a skill on a whole split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from skillopt.core.context import Context
from skillopt.core.retry import all_measured
from skillopt.core.rollout import failed, roll_out_one, scored
from skillopt.envs.base import Item, Trajectory
from skillopt.errors import Stopped
from skillopt.skill import Skill


class Measured(BaseModel):
    """A skill's scores on a whole split."""

    values: dict[str, float]
    set_aside: dict[str, str]
    trajectories: list[Trajectory]

    @property
    def score(self) -> float:
        return math.fsum(self.values.values()) / len(self.values) if self.values else 0.0


async def measure(skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str, stage: str) -> Measured:
    """Every item once. Endpoint failures stop the run: a mean over what happened to work would be no score."""
    work = [
        partial(roll_out_one, skill, item, ctx, tag=tag, number=number, stage=stage)
        for number, item in enumerate(items)
    ]
    with ctx.timed(stage):
        results = await all_measured(work, ctx, stage)
    refused = {error.item_id: error.error for error in failed(results)}
    require_few(refused, len(items))
    metric = ctx.config.evaluation.metric
    trajectories = scored(results)
    values = {t.item_id: t.score.value(metric) for t in trajectories}
    return Measured(values=values, set_aside=refused, trajectories=trajectories)


def require_few(refused: Mapping[str, str], total: int) -> None:
    """One, or a tenth, may be; a split of which nothing is left measures nothing."""
    if len(refused) > max(1, total // 10) or len(refused) == total:
        raise Stopped(
            f"{len(refused)} of {total} items cannot be measured; the last reason: {list(refused.values())[-1]}"
        )
