"""The pulse of a run: `live.json` says where it is right now, for whoever watches from another process.

It is written twice a second and means nothing once the run's lock is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from skillopt.models.call import Budget, Caller
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Events
from skillopt.run.files import write_brief
from skillopt.run.summary import usage

INTERVAL = 0.5


@contextlib.asynccontextmanager
async def beating(
    run: RunDirectory, events: Events, callers: Mapping[str, Caller], budget: Budget
) -> AsyncIterator[None]:
    """Keep `live.json` up to date for as long as the block lasts, and leave none behind."""
    task = asyncio.create_task(_beat(run, events, callers, budget))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await task
        run.live.unlink(missing_ok=True)


async def _beat(run: RunDirectory, events: Events, callers: Mapping[str, Caller], budget: Budget) -> None:
    while True:
        write_brief(run.live, pulse(events, callers, budget))
        await asyncio.sleep(INTERVAL)


def pulse(events: Events, callers: Mapping[str, Caller], budget: Budget) -> dict[str, Any]:
    """What is going on: the newest event, progress, calls in flight, and all that was paid."""
    last = events.last
    journal = next(iter(callers.values())).journal
    return {
        "time": round(time.time(), 3),
        "pid": os.getpid(),
        "kind": last.kind if last else "",
        "step": last.step if last else 0,
        "epoch": last.epoch if last else 0,
        "progress": events.progress,
        "in_flight": {role: caller.limiter.in_flight for role, caller in callers.items()},
        "retries": {role: caller.retries for role, caller in callers.items()},
        "paid": usage(journal.totals(), budget.cost),
    }
