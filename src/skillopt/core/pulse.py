"""The pulse of a run, twice a second: the stage, the calls in flight, the money spent.

It is sent to listeners, and written to `live.json` for other processes. Nothing of it is kept, and nothing in the
run depends on it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from skillopt.core.context import Context
from skillopt.models.call import Caller
from skillopt.run.files import write_brief

SECONDS = 0.5
EVERY = 15.0
"""Seconds between two lines about the same throttled endpoint."""


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
    known: set[int] = set()
    callers = {"target": ctx.target, "optimizer": ctx.optimizer}
    throttled = Throttled(ctx, callers)
    while True:
        letters = _letters(ctx, known)
        held_up = throttled.look()
        in_flight = {role: caller.limiter.in_flight for role, caller in callers.items()}
        spent = ctx.target.budget.spent()
        ctx.emit("pulse", in_flight=in_flight, spent=spent, letters=letters, throttled=held_up)
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
            "letters": letters,
            "throttled": held_up,
            "retries": sum(caller.retries for caller in callers.values()),
        }
        with suppress(OSError):  # the run itself reports a full disk
            write_brief(ctx.run.live, now)
        await asyncio.sleep(SECONDS)


class Throttled:
    """Endpoints that turn calls away. It is said when that begins, and again while it lasts."""

    def __init__(self, ctx: Context, callers: Mapping[str, Caller]) -> None:
        self._ctx = ctx
        self._callers = callers
        self._counted = dict.fromkeys(callers, 0)
        self._said = dict.fromkeys(callers, -EVERY)

    def look(self) -> list[dict[str, Any]]:
        """The models whose calls wait now, and for what."""
        found = []
        for role, caller in self._callers.items():
            away, now = caller.limiter.endpoint.turned_away, time.monotonic()
            row = {
                "model": caller.model.name,
                "waiting": caller.throttle.waiting,
                "seconds": round(caller.throttle.seconds(), 1),
                "why": caller.throttle.why,
                "turned_away": away,
            }
            grew, self._counted[role] = away > self._counted[role], away
            if caller.throttle.why and (caller.throttle.waiting or grew):
                found.append(row)
                if now - self._said[role] >= EVERY:
                    self._said[role] = now
                    self._ctx.emit("throttled", **row)
        return found


def _letters(ctx: Context, known: set[int]) -> dict[str, Any]:
    """The letters that the run waits for, and their folder; each new one is reported once."""
    waiting = dict(getattr(ctx.optimizer.model, "waiting", {}))  # only a handoff has any
    folder = next((str(letter.folder) for letter in waiting.values()), "")
    if new := sorted(waiting.keys() - known):
        known.update(waiting)
        ctx.emit("letters_opened", numbers=new, folder=folder, waiting=len(waiting))
    return {"waiting": len(waiting), "folder": folder}
