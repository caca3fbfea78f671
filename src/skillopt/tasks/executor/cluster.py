"""Does tasks on a Ray cluster: each CPU has a worker with its own env. Model calls, limiter, budget and journal
stay in this process."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

from skillopt.config import HardwareConfig
from skillopt.errors import UserError
from skillopt.tasks.base import Env
from skillopt.tasks.executor.pool import PooledExecutor, RemoteWorker, WorkerLostError
from skillopt.tasks.executor.worker import EnvWorker


class RayExecutor(PooledExecutor):
    """An executor with at most one worker for each CPU of the cluster."""

    def __init__(self, hardware: HardwareConfig, workers: int, make: Callable[[], Env]) -> None:
        self._ray = ray = _import_ray()
        self._started_here = not ray.is_initialized()
        if self._started_here:
            _connect(ray, hardware.ray_address)
        self._actor = ray.remote(EnvWorker).options(num_cpus=1, max_concurrency=1000)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        sent = pickle.dumps(([], ray.cloudpickle.dumps(make)))
        super().__init__(max(1, min(cpus, workers)), "the cluster", sent)

    async def close(self) -> None:
        await super().close()
        if self._started_here:
            self._ray.shutdown()

    async def start(self) -> RemoteWorker:
        return RayWorker(self._ray, self._actor.remote())


class RayWorker(RemoteWorker):
    """A worker that is an actor of Ray."""

    def __init__(self, ray: Any, worker: Any) -> None:
        self._ray, self._worker = ray, worker

    async def tell(self, token: int, message: bytes) -> bytes:
        try:
            reply: bytes = await self._worker.tell.remote(token, message)
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(str(error)) from None
        return reply

    async def end(self) -> None:
        self._ray.kill(self._worker)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no statistics to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # the workers do the run's main work: no lower priority
    try:
        import ray
    except ImportError:
        raise UserError("hardware.executor: 'ray' is not installed; run: pip install 'skillopt[ray]'") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    """Join the cluster at the address, or start one on this machine."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", include_dashboard=False if not address else None, log_to_driver=False)
    except Exception as error:  # any error of the library for an address that does not answer
        raise UserError(f"hardware.ray_address: cannot reach Ray at '{address or 'local'}': {error}") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray replaces the handler; ours ends a run cleanly
