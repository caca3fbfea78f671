"""Items without a result, because the endpoint failed, are tried again; then the run stops, and nothing is decided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from skillopt.core.context import Context
from skillopt.core.rollout import roll_out_one
from skillopt.envs.base import Item, RolloutError, Trajectory
from skillopt.errors import Stopped
from skillopt.models.call import gather_all
from skillopt.skill import Skill

PAUSES = (1.0, 5.0)
"""Seconds before each further round, on top of the retries that every single call has."""

Work = Callable[[], Awaitable[Trajectory | RolloutError]]


async def wait_or_stop(rounds: int, unmeasured: Sequence[RolloutError], total: int, ctx: Context, stage: str) -> None:
    """After `rounds` rounds items are still unmeasured: wait for another round, or stop the run.

    Where calls are not retried (hardware.max_retries 0), rounds are not either.
    """
    pauses = PAUSES if ctx.config.hardware.max_retries else ()
    if rounds > len(pauses):
        ctx.emit("unmeasured", stage=stage, unmeasured=len(unmeasured), items=total, error=unmeasured[-1].error)
        raise Stopped(
            f"{stage}: {len(unmeasured)} of {total} items could not be measured, so nothing was decided; "
            f"the last error: {unmeasured[-1].error}"
        )
    ctx.emit("retrying", stage=stage, unmeasured=len(unmeasured), items=total, error=unmeasured[-1].error)
    await ctx.target.switch.sleep(pauses[rounds - 1])


async def all_measured(work: Sequence[Work], ctx: Context, stage: str) -> list[Trajectory | RolloutError]:
    """Every rollout's result in order; the only errors among them are refusals because of the item's content."""
    settled: dict[int, Trajectory | RolloutError] = {}
    unmeasured: list[RolloutError] = []

    async def one(number: int) -> None:
        result = await work[number]()
        if isinstance(result, RolloutError) and not result.refused:
            unmeasured.append(result)
            return
        settled[number] = result
        ctx.emit("progress", stage=stage, done=len(settled), total=len(work))

    rounds = 0
    while len(settled) < len(work):
        unmeasured.clear()
        await gather_all(one(number) for number in range(len(work)) if number not in settled)
        rounds += 1
        if unmeasured:
            await wait_or_stop(rounds, unmeasured, len(work), ctx, stage)
    return [settled[number] for number in range(len(work))]


async def roll_out_all(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str, stage: str
) -> list[Trajectory | RolloutError]:
    """Every item once with the skill; an error among the results is a refusal because of the item's content."""
    work = [
        partial(roll_out_one, skill, item, ctx, tag=tag, number=number, stage=stage)
        for number, item in enumerate(items)
    ]
    return await all_measured(work, ctx, stage)
