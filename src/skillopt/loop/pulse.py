"""A heartbeat for whoever watches a run: what is in flight, what is spent. It is told to listeners and never stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from skillopt.loop.context import Context

SECONDS = 0.5


@asynccontextmanager
async def pulse(ctx: Context) -> AsyncIterator[None]:
    """Beats while the block lasts; nothing in the run depends on it."""
    if not ctx.events.watched:
        yield
        return
    task = asyncio.create_task(_beat(ctx))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _beat(ctx: Context) -> None:
    while True:
        in_flight = {"target": ctx.target.limiter.in_flight, "optimizer": ctx.optimizer.limiter.in_flight}
        ctx.emit("pulse", in_flight=in_flight, spent=ctx.target.budget.standing())
        await asyncio.sleep(SECONDS)
