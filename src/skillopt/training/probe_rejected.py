"""Probe a rejected candidate: the target's outputs with it on some tasks of the batch, for the next request.

Validation tasks are never shown, and the next batch is done with the current skill. Without the probe an optimizer
would not see how its rejected text was followed.
"""

from __future__ import annotations

from skillopt.tasks.base import Trajectory
from skillopt.training.context import Context
from skillopt.training.rollout import roll_out_all
from skillopt.training.step_files import StepWork

MOST_PROBED = 4
"""Tasks that the rejected candidate does, of those that failed before."""


async def probe_rejected(work: StepWork, ctx: Context) -> list[Trajectory]:
    """A few failed tasks of the batch, done with the rejected candidate; none if no analyst reads about it."""
    read = any(analyst.needs_optimizer for analyst in ctx.analysts) and ctx.step < ctx.steps
    if not read or work.verdict.decision != "reject" or not work.candidate.applied:
        return []
    failed = {t.item_id for t in work.results if isinstance(t, Trajectory) and t.score.hard < 1}
    items = [item for item in work.step.items if item.id in failed]
    some = items[:: max(1, len(items) // MOST_PROBED)][:MOST_PROBED]
    with ctx.timed("rollout"):
        results = await roll_out_all(
            work.candidate.skill, some, ctx, tag=f"rejected-{ctx.step:04d}", stage="second_look"
        )
    return [result for result in results if isinstance(result, Trajectory)]
