"""A second look at a rejected candidate: what the target makes of it on tasks of the batch, for the next letter.

Validation tasks are never shown, and the next batch is done with the skill before it. Without this an optimizer would
not see how its rejected text was followed.
"""

from __future__ import annotations

from skillopt.core.context import Context
from skillopt.core.retry import roll_out_all
from skillopt.envs.base import Trajectory
from skillopt.loop.record import StepWork

LOOKS = 4
"""Tasks that the rejected candidate does, of those that failed before."""


async def second_look(work: StepWork, ctx: Context) -> list[Trajectory]:
    """A few failed tasks of the batch, done with the rejected candidate; none where nobody reads about it."""
    read = any(analyst.needs_optimizer for analyst in ctx.analysts) and ctx.step < ctx.steps
    if not read or work.verdict.decision != "reject" or not work.candidate.applied:
        return []
    failed = {t.item_id for t in work.results if isinstance(t, Trajectory) and t.score.hard < 1}
    items = [item for item in work.step.items if item.id in failed]
    some = items[:: max(1, len(items) // LOOKS)][:LOOKS]
    with ctx.timed("rollout"):
        results = await roll_out_all(
            work.candidate.skill, some, ctx, tag=f"rejected-{ctx.step:04d}", stage="second_look"
        )
    return [result for result in results if isinstance(result, Trajectory)]
