"""The pulse of a run, twice a second: what is going on, what is in flight, what is spent.

Listeners are told, and `live.json` tells whoever watches from another process. Nothing of it stays, and nothing in the
run depends on it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from skillopt.core.context import Context
from skillopt.run.files import write_brief

SECONDS = 0.5


@asynccontextmanager
async def pulse(ctx: Context) -> AsyncIterator[None]:
    """Beats while the block lasts."""
    task = asyncio.create_task(_beat(ctx))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
        ctx.run.live.unlink(missing_ok=True)


async def _beat(ctx: Context) -> None:
    while True:
        callers = {"target": ctx.target, "optimizer": ctx.optimizer}
        in_flight = {role: caller.limiter.in_flight for role, caller in callers.items()}
        spent = ctx.target.budget.standing()
        ctx.emit("pulse", in_flight=in_flight, spent=spent)
        last = ctx.events.last
        now = {
            "time": round(time.time(), 3),
            "pid": os.getpid(),
            "kind": last.kind if last else "",
            "step": last.step if last else 0,
            "epoch": last.epoch if last else 0,
            "progress": ctx.events.progress,
            "in_flight": in_flight,
            "spent": spent,
            "retries": sum(caller.retries for caller in callers.values()),
        }
        with suppress(OSError):  # a full disk is the run's own trouble
            write_brief(ctx.run.live, now)
        await asyncio.sleep(SECONDS)
