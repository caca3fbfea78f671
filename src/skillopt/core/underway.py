"""What was started and has not been waited for yet: nothing of it may outlive the session, since it is paid for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from skillopt.core.rollout import Rollouts

T = TypeVar("T")


class Underway:
    """Starts work in parallel with the loop. Callers that need a result await its task; `settle` awaits the others."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ahead: dict[str, Rollouts] = {}
        """Rollouts that were begun before the loop needed them, by their tag."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits it gets it; if nobody does, the run has ended for another reason

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
