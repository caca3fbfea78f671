"""The heartbeat: twice per second, a run reports its stage, the calls in flight and the money spent.

The report is sent to listeners, and written to `live.json` for other processes. Old reports are not kept, and nothing
in the run depends on a report.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from skillopt.models.call import Caller
from skillopt.record.events import LettersOpened, Live, Pulse, Throttled, ThrottledModel, WaitingLetters
from skillopt.record.files import write_brief
from skillopt.training.context import Context

SECONDS = 0.5
EVERY = 15.0
"""Seconds between two messages about the same throttled endpoint."""


@asynccontextmanager
async def heartbeat(ctx: Context) -> AsyncIterator[None]:
    """Report the run's activity while the block runs."""
    task = asyncio.create_task(_beat(ctx))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        ctx.run.live.unlink(missing_ok=True)


async def _beat(ctx: Context) -> None:
    reported: set[int] = set()
    callers = {"target": ctx.target, "optimizer": ctx.optimizer} | ({"judge": ctx.judge} if ctx.judge else {})
    throttled = ThrottleWatch(ctx, callers)
    while True:
        letters = _letters(ctx, reported)
        held_up = throttled.look()
        in_flight = {role: caller.limiter.in_flight for role, caller in callers.items()}
        spent = ctx.target.budget.spent()
        ctx.emit(Pulse(in_flight=in_flight, spent=spent, letters=letters, throttled=held_up))
        last = ctx.events.last
        now = Live(
            time=round(time.time(), 3),
            pid=os.getpid(),
            kind=last.kind if last else "",
            step=last.step if last else 0,
            epoch=last.epoch if last else 0,
            progress=ctx.events.progress,
            in_flight=in_flight,
            spent=spent,
            letters=letters,
            throttled=held_up,
            retries=sum(caller.retries for caller in callers.values()),
        )
        with suppress(OSError):  # the run itself reports a full disk
            write_brief(ctx.run.live, now)
        await asyncio.sleep(SECONDS)


class ThrottleWatch:
    """Reports endpoints that reject calls because too many arrive. As long as an endpoint rejects calls, the report is
    repeated."""

    def __init__(self, ctx: Context, callers: Mapping[str, Caller]) -> None:
        self._ctx = ctx
        self._callers = callers
        self._counted = dict.fromkeys(callers, 0)
        self._reported = dict.fromkeys(callers, -EVERY)

    def look(self) -> tuple[ThrottledModel, ...]:
        """The models whose calls are waiting now, each with the reason."""
        waiting = []
        for role, caller in self._callers.items():
            away, now = caller.limiter.endpoint.turned_away, time.monotonic()
            row = ThrottledModel(
                model=caller.model.name,
                waiting=caller.throttle.waiting,
                seconds=round(caller.throttle.seconds(), 1),
                why=caller.throttle.why,
                turned_away=away,
            )
            grew, self._counted[role] = away > self._counted[role], away
            if caller.throttle.why and (caller.throttle.waiting or grew):
                waiting.append(row)
                if now - self._reported[role] >= EVERY:
                    self._reported[role] = now
                    self._ctx.emit(Throttled(**dict(row)))
        return tuple(waiting)


def _letters(ctx: Context, reported: set[int]) -> WaitingLetters:
    """The number of letters for which the run waits, and their folder. Each new letter is reported once."""
    waiting = dict(ctx.optimizer.model.waiting)
    folder = str(next(iter(waiting.values()), ""))
    if new := sorted(waiting.keys() - reported):
        reported.update(waiting)
        ctx.emit(LettersOpened(numbers=tuple(new), folder=folder, waiting=len(waiting)))
    return WaitingLetters(waiting=len(waiting), folder=folder)
