"""What the command line does, in code: train a skill, measure a skill."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

from skillopt.config import Config
from skillopt.errors import SkillOptError
from skillopt.loop.session import Mode
from skillopt.loop.trainer import Result, Trainer
from skillopt.report.html import write_report
from skillopt.report.trackers import tracking
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Listener


def train(config: Config | str | Path, *, listeners: Sequence[Listener] = (), mode: Mode = "auto") -> Result:
    """Train to the end and write the report. Ctrl-C stops with everything paid for kept; again, it leaves at once."""
    loaded = config if isinstance(config, Config) else Config.load(config)
    return asyncio.run(train_async(loaded, listeners=listeners, mode=mode))


async def train_async(config: Config, *, listeners: Sequence[Listener] = (), mode: Mode = "auto") -> Result:
    async with tracking(config, tuple(listeners)) as tracker:
        trainer = Trainer(config, listeners=[*listeners, tracker], mode=mode)
        with _interruptible(trainer):
            try:
                result = await trainer.fit()
            except SkillOptError:
                if trainer.started and trainer.run.summary.exists():
                    write_report(trainer.run)
                    tracker.finish(trainer.run)
                raise
        write_report(RunDirectory(result.path))
        tracker.finish(RunDirectory(result.path))
    return result


class _interruptible(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """SIGINT and SIGTERM end the run in good order; a second one has its usual effect."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
                self._loop.add_signal_handler(number, self._once)

    def __exit__(self, *error: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.remove_signal_handler(number)

    def _once(self) -> None:
        self.__exit__()
        self._trainer.interrupt()
