"""Runs async work from code that is not async, even if an event loop is already running, as in a notebook."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from skillopt.errors import BY_HAND, SkillOptError, Stopped
from skillopt.keys import redact

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def run_sync(work: Coroutine[Any, Any, T], interrupt: Callable[[], bool] = lambda: False) -> T:
    """Run async work and return its result. If an event loop is already running (in a notebook), use a separate thread.

    A notebook's stop button works like Ctrl-C: it calls `interrupt`, which ends the work cleanly. If `interrupt`
    returns False, or the button is pressed again, the work is cancelled.
    """
    try:
        return _finished(work, interrupt)
    except SkillOptError as error:
        raise _alone(error) from None


def one_message(function: F) -> F:
    """A decorator that removes the causes from errors of SkillOpt, because the error's message says everything."""

    @functools.wraps(function)
    def called(*arguments: Any, **keys: Any) -> Any:
        try:
            return function(*arguments, **keys)
        except SkillOptError as error:
            raise _alone(error) from None

    return cast("F", called)


def _alone(error: SkillOptError) -> SkillOptError:
    """The error without its causes and its traceback."""
    error.__cause__ = None
    return error.with_traceback(None)


def _finished(work: Coroutine[Any, Any, T], interrupt: Callable[[], bool]) -> T:
    if not _in_a_loop():
        with ending_shortly():
            return asyncio.run(work)
    thread = _Elsewhere(work)
    pressed = False
    while True:
        try:
            return thread.done.result(timeout=0.2)
        except TimeoutError:
            if thread.done.done():
                raise
        except KeyboardInterrupt:
            if thread.done.done():
                raise
            if pressed or not interrupt():
                thread.cancel()
            pressed = True


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextlib.contextmanager
def ending_shortly() -> Iterator[None]:
    """If this block raises Stopped or KeyboardInterrupt and no code catches it, the program ends with a message and
    without a traceback, as a command does."""
    try:
        yield
    except (Stopped, KeyboardInterrupt):
        if sys.excepthook is sys.__excepthook__:  # leave the hook alone if other code has set one
            sys.excepthook = _say_stopped
        raise


def _say_stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, Stopped | KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    reason = redact(str(error)) or BY_HAND
    print(f"stopped: {reason}\nEverything paid for is kept; run the same program again to continue.", file=sys.stderr)
    sys.exit(130 if reason == BY_HAND else 3)


class _Elsewhere(Generic[T]):
    """Runs async work on a separate event loop in a separate thread."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.done: Future[T] = Future()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work)
        threading.Thread(target=self._run, name="skillopt", daemon=True).start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                self.done.set_result(runner.run(self._awaited()))
            except asyncio.CancelledError:
                self.done.set_exception(KeyboardInterrupt())
            except BaseException as error:  # the error is raised in the caller that waits
                self.done.set_exception(error)

    async def _awaited(self) -> T:
        return await self._task

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
