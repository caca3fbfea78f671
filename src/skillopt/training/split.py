"""Measuring a skill on a whole split."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel

from skillopt.record.events import SetAside
from skillopt.skill import Skill
from skillopt.tasks.base import Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.rollout import failed, require_few, roll_out_all, scored


class Measured(BaseModel):
    """A skill's scores on a whole split."""

    values: dict[str, float]
    set_aside: dict[str, str]
    trajectories: list[Trajectory]

    @property
    def score(self) -> float:
        return math.fsum(self.values.values()) / len(self.values) if self.values else 0.0


async def measure(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str, stage: str, set_aside: int = 0
) -> Measured:
    """Every item once. Endpoint failures stop the run: a mean over the other items would not be the split's score.

    `set_aside` items of the split were refused earlier in the run and are not among `items`.
    """
    with ctx.timed(stage):
        results = await roll_out_all(skill, items, ctx, tag=tag, stage=stage)
    refused = {error.item_id: error.error for error in failed(results)}
    require_few(refused, len(items), set_aside=set_aside)
    if refused:
        ctx.emit(SetAside(items=refused))
    metric = ctx.config.evaluation.metric
    trajectories = scored(results)
    values = {t.item_id: t.score.value(metric) for t in trajectories}
    return Measured(values=values, set_aside=refused, trajectories=trajectories)
