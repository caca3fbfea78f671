"""Virtual time: loops that jump to their next timer instead of waiting for it (fixture `virtual_time`).

Inside such a test `asyncio.sleep(60)` takes no time, and `time.monotonic()` is 60 s later afterwards. What a test says
of seconds then holds on every machine. For code in this process alone: sockets and other processes need real time. What
would run in a thread runs in place, so that events come in the same order every time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Clock:
    """Shared by all loops of a test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def run(self, work: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
        """As `asyncio.run`."""
        with asyncio.Runner(debug=debug, loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(work)


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        self._clock.now += timeout or 0
        return super().select(None if timeout is None else 0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self.time = clock.monotonic  # type: ignore[method-assign]
        super().__init__(_Selector(clock))

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done
