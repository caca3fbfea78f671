"""What every stage gets besides its inputs. There are no globals: two trainings can run in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from skillopt.config import Config
from skillopt.models.call import Caller
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event, Events
from skillopt.tasks.base import Env, is_judged, is_noisy
from skillopt.tasks.executor import Executor, LocalExecutor
from skillopt.training.analysts.base import Analyst


@dataclass(frozen=True, kw_only=True)
class Context:
    config: Config
    env: Env
    target: Caller
    optimizer: Caller
    run: RunDirectory
    events: Events
    analysts: tuple[Analyst, ...] = ()
    """They propose edits; a measurement has none."""
    epoch: int = 0
    step: int = 0
    steps: int = 0
    """How many steps the run has in all."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage; telemetry only."""
    executor: Executor = field(default_factory=LocalExecutor)
    """Where tasks are done and scored."""

    @property
    def noisy(self) -> bool:
        """May the same skill score differently on the same item another time?"""
        scores = is_noisy(self.env) and not (is_judged(self.env) and self.optimizer.deterministic)
        return scores or not self.target.deterministic

    def at(self, epoch: int, step: int) -> Context:
        return replace(self, epoch=epoch, step=step, seconds={})

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - start, 4)

    def rng(self, stage: str) -> random.Random:
        """A random generator for one stage of one step, so that stages do not influence each other."""
        return random.Random(f"{self.config.train.seed}/{self.epoch}/{self.step}/{stage}")  # noqa: S311

    def emit(self, event: Event) -> None:
        self.events.emit(event, step=self.step, epoch=self.epoch)
