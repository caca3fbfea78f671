"""Tasks on a Ray cluster: each CPU has a worker with its own env. Calls, limiter, budget and journal are here."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from skillopt.config import HardwareConfig
from skillopt.envs.base import Env, Item
from skillopt.errors import UserError
from skillopt.executor.base import WorkerLostError
from skillopt.executor.pool import READY_WITHIN, Line, Pool
from skillopt.executor.worker import EnvWorker
from skillopt.skill import Skill


class RayExecutor(Pool):
    """Each CPU of the cluster has a worker."""

    def __init__(self, ray: Any, make: Callable[[], Env], workers: int, *, started: bool) -> None:
        self._ray = ray
        self._actor = ray.remote(EnvWorker).options(num_cpus=1, max_concurrency=1000)
        self._make = ray.put(make)
        self._started = started
        self._skills: OrderedDict[str, Any] = OrderedDict()
        super().__init__(workers, "the cluster")

    @classmethod
    async def open(cls, hardware: HardwareConfig, workers: int, make: Callable[[], Env]) -> RayExecutor:
        ray = _import_ray()
        started = not ray.is_initialized()
        if started:
            _connect(ray, hardware.ray_address)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        executor = cls(ray, make, max(1, min(cpus, workers)), started=started)
        await executor.first()
        return executor

    async def close(self) -> None:
        await super().close()
        if self._started:
            self._ray.shutdown()

    async def start(self) -> Line:
        worker = self._actor.remote(self._make)
        try:
            async with asyncio.timeout(READY_WITHIN):
                await worker.ready.remote()
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            cause = getattr(error, "cause", None)
            raise cause if isinstance(cause, UserError) else UserError(f"a Ray worker cannot start: {error}") from None
        return RayLine(self._ray, worker, self._stored)

    def _stored(self, skill: Skill) -> Any:
        """The skill goes to each machine once, not with every task."""
        if skill.hash not in self._skills:
            self._skills[skill.hash] = self._ray.put(skill)
            if len(self._skills) > 16:
                self._skills.popitem(last=False)
        return self._skills[skill.hash]


class RayLine(Line):
    """One actor."""

    def __init__(self, ray: Any, worker: Any, stored: Callable[[Skill], Any]) -> None:
        super().__init__()
        self._ray, self._worker, self._stored = ray, worker, stored

    async def begin(self, token: str, item: Item, skill: Skill) -> bytes:
        return await self._kept(self._worker.begin.remote(token, item, self._stored(skill)))

    async def answer(self, token: str, answer: bytes) -> bytes:
        return await self._kept(self._worker.answer.remote(token, answer))

    async def _kept(self, sent: Awaitable[bytes]) -> bytes:
        try:
            return await sent
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(str(error)) from None

    async def end(self) -> None:
        self._ray.kill(self._worker)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # theirs is the run's own work, not something in the background
    try:
        import ray
    except ImportError:
        raise UserError("hardware.executor: ray needs the extra: pip install 'skillopt[ray]'") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    """Join the cluster at the address, or start one on this machine."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", include_dashboard=False if not address else None, log_to_driver=False)
    except Exception as error:  # whatever the library raises for an address that does not answer
        raise UserError(f"hardware.ray_address: cannot reach Ray at '{address or 'local'}': {error}") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray replaces the handler; ours ends a run cleanly
