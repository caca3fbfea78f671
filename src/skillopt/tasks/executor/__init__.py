"""Does and scores tasks in this process, in other processes or on a cluster. Only this process makes model calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from skillopt.config import Config
from skillopt.tasks import open_env
from skillopt.tasks.base import Env
from skillopt.tasks.executor.pool import Executor, NewChat, PooledExecutor, WorkerLostError

__all__ = ["Executor", "NewChat", "WorkerLostError", "open_executor"]


@asynccontextmanager
async def open_executor(config: Config, env: Env, *, own: bool) -> AsyncIterator[Executor]:
    """Open the executor that the config names, and close it at the end. If `own` is true, each worker
    opens the env from the config; else the env is sent to the workers."""
    if config.hardware.executor == "local":
        yield Executor()
        return
    make = partial(open_env, config) if own else partial(_same, env)
    workers = config.role("target").workers
    executor: PooledExecutor
    if config.hardware.executor == "processes":
        from skillopt.tasks.executor.processes import ProcessExecutor

        executor = ProcessExecutor(workers, make)
    else:
        from skillopt.tasks.executor.cluster import RayExecutor

        executor = RayExecutor(config.hardware, workers, make)
    try:
        await executor.first()
        yield executor
    finally:
        await executor.close()


def _same(env: Env) -> Env:
    return env
