"""The context that every stage gets besides its inputs. There are no globals, so two trainings can run in one
process."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from skillopt.config import Config
from skillopt.models.call import Caller
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event, Events
from skillopt.skill import Skill
from skillopt.tasks.base import Env, is_judged, is_noisy
from skillopt.tasks.executor import Executor
from skillopt.training.analysts.base import Analyst

if TYPE_CHECKING:
    from skillopt.training.rollout import Rollouts

T = TypeVar("T")


class BackgroundTasks:
    """Starts work in parallel with the loop. A caller that needs a result awaits its task; `settle` waits for all
    tasks. When the session ends, no task may still run, because its calls would cost money."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ahead: dict[str, Rollouts] = {}
        """Rollouts that were started before the loop needed them, by tag."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that awaits the task gets the error; this line avoids a warning

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)


@dataclass(frozen=True, kw_only=True)
class Context:
    config: Config
    env: Env
    target: Caller
    optimizer: Caller
    judge: Caller | None = None
    """The model that judges answers. If this is None and the env needs a judge, the optimizer judges."""
    run: RunDirectory
    events: Events
    analysts: tuple[Analyst, ...] = ()
    """The analysts, which propose edits; empty in a measurement."""
    epoch: int = 0
    step: int = 0
    steps: int = 0
    """The number of steps of the whole run."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds spent so far, by stage; only for telemetry."""
    executor: Executor = field(default_factory=Executor)
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    changed: Mapping[str, int] = field(default_factory=dict)
    """How often, in the steps before this one, each validation item got a different score under a candidate than under
    the current skill."""
    low_priority: bool = False
    """True if nothing waits for this work yet, so its calls use only free slots."""
    expect: Callable[[Skill], None] | None = None
    """A function that a gate calls with the candidate as soon as it is certain that the gate will accept it, even if
    items are still running."""

    @property
    def grader(self) -> Caller:
        return self.judge or self.optimizer

    @property
    def noisy(self) -> bool:
        """True if the score of the same skill on the same item may differ from one rollout to the next."""
        scores = is_noisy(self.env) and not (is_judged(self.env) and self.grader.deterministic)
        return scores or not self.target.deterministic

    def at(self, epoch: int, step: int) -> Context:
        return replace(self, epoch=epoch, step=step, seconds={})

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - start, 4)

    def rng(self, stage: str) -> random.Random:
        """A random generator for one stage of one step, so stages do not influence each other's random choices."""
        return random.Random(f"{self.config.train.seed}/{self.epoch}/{self.step}/{stage}")  # noqa: S311

    def emit(self, event: Event) -> None:
        self.events.emit(event, step=self.step, epoch=self.epoch)
