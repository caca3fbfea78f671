"""Tasks on a Ray cluster: each CPU has a worker with its own env. Calls, limiter, budget and journal stay here."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from skillopt.config import HardwareConfig
from skillopt.envs.base import Chat, Env, Episode, Item, Judge, Score, score_output
from skillopt.errors import Stopped, UserError
from skillopt.executor.base import NewChat, WorkerLostError
from skillopt.executor.worker import Answer, EnvWorker, Turn
from skillopt.models.base import RefusedError
from skillopt.skill import Skill

MOST_LOSSES = 3
"""Workers that one task may lose before it is taken for the cause."""
READY_WITHIN = 300.0
"""Seconds until a worker has opened its env."""


class RayExecutor:
    """A pool of workers. A task goes to the least busy one; if that is lost, the task is begun again elsewhere."""

    def __init__(self, ray: Any, make: Callable[[], Env], workers: int, width: int, *, started: bool) -> None:
        self._ray = ray
        self._actor = ray.remote(EnvWorker).options(num_cpus=1, max_concurrency=2 * width + 8)
        self._make = ray.put(make)
        self._started = started
        self._loads: Counter[Any] = Counter()
        self._changed = asyncio.Condition()
        self._tokens = itertools.count()
        self._skills: OrderedDict[str, Any] = OrderedDict()
        self._trouble: Exception | None = None
        self._hiring = {asyncio.create_task(self._hire()) for _ in range(workers)}

    @classmethod
    async def open(cls, hardware: HardwareConfig, make: Callable[[], Env]) -> RayExecutor:
        ray = _import_ray()
        started = not ray.is_initialized()
        if started:
            _connect(ray, hardware.ray_address)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        workers = max(1, min(cpus, hardware.workers))
        executor = cls(ray, make, workers, hardware.workers, started=started)
        try:
            await executor._first()
        except BaseException:
            await executor.close()
            raise
        return executor

    async def close(self) -> None:
        for task in self._hiring:
            task.cancel()
        await asyncio.gather(*self._hiring, return_exceptions=True)
        for worker in list(self._loads):
            self._ray.kill(worker)
        if self._started:
            self._ray.shutdown()

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        for _ in range(MOST_LOSSES):
            try:
                episode, score = await self._on_a_worker(item, skill, new_chat())
            except WorkerLostError:
                continue
            return episode, score or await score_output(env, item, episode.output, judge)
        raise RefusedError(f"item '{item.id}': lost its worker {MOST_LOSSES} times; it may be what ends them")

    async def _on_a_worker(self, item: Item, skill: Skill, chat: Chat) -> tuple[Episode, Score | None]:
        worker = await self._least_busy()
        token = str(next(self._tokens))
        conversation = _Conversation(worker, token, chat, self._ray.exceptions.RayError)
        self._loads[worker] += 1
        try:
            return await conversation.held(item, self._stored(skill))
        except WorkerLostError:
            self._dismiss(worker)
            raise
        finally:
            if worker in self._loads:
                self._loads[worker] -= 1

    def _stored(self, skill: Skill) -> Any:
        """The skill goes to each machine once, not with every task."""
        if skill.hash not in self._skills:
            self._skills[skill.hash] = self._ray.put(skill)
            if len(self._skills) > 16:
                self._skills.popitem(last=False)
        return self._skills[skill.hash]

    # The pool

    async def _first(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._loads or self._trouble)
        if not self._loads and self._trouble:
            raise self._trouble

    async def _least_busy(self) -> Any:
        async with self._changed:
            await self._changed.wait_for(lambda: self._loads or self._trouble)
        if not self._loads:
            assert self._trouble
            raise Stopped(f"no worker is left on the cluster: {self._trouble}")
        return min(self._loads, key=lambda worker: self._loads[worker])

    async def _hire(self) -> None:
        """One more worker joins the pool as soon as it has opened its env."""
        worker = self._actor.remote(self._make)
        try:
            async with asyncio.timeout(READY_WITHIN):
                await worker.ready.remote()
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            cause = getattr(error, "cause", None)
            self._trouble = cause if isinstance(cause, UserError) else UserError(f"a Ray worker cannot start: {error}")
        else:
            self._loads[worker] = 0
        async with self._changed:
            self._changed.notify_all()

    def _dismiss(self, worker: Any) -> None:
        """A lost worker leaves the pool once, and another is hired for it."""
        if self._loads.pop(worker, None) is not None:
            task = asyncio.create_task(self._hire())
            self._hiring.add(task)
            task.add_done_callback(self._hiring.discard)


class _Conversation:
    """One task on one worker: its turns are answered until it is done."""

    def __init__(self, worker: Any, token: str, chat: Chat, lost: type[Exception]) -> None:
        self._worker, self._token, self._chat, self._lost = worker, token, chat, lost

    async def held(self, item: Item, skill: Any) -> tuple[Episode, Score | None]:
        turn = await self._turn(self._worker.begin.remote(self._token, item, skill))
        return await self._until("done", turn)  # type: ignore[no-any-return]

    async def _until(self, end: str, turn: Turn) -> Any:
        while turn.kind != end:
            if turn.kind == "error":
                raise turn.value
            if turn.kind == "lost":
                raise WorkerLostError("the worker was started anew")
            turn = await self._turn(self._worker.say.remote(self._token, await self._answer(turn)))
        return turn.value

    async def _answer(self, turn: Turn) -> Answer:
        try:
            if turn.kind == "chat":
                messages, tools = turn.value
                return Answer("value", await self._chat(messages, tools=tools))
            return Answer("value", await self._chat.whole(turn.value, self._work))
        except WorkerLostError:
            raise
        except Exception as error:  # it is raised in the env, which may know what to do with it
            return Answer("error", error)

    async def _work(self) -> dict[str, Any]:
        """The worker does a whole rollout's work; what it asks for meanwhile is answered."""
        turn = await self._turn(self._worker.say.remote(self._token, Answer("do")))
        return await self._until("did", turn)  # type: ignore[no-any-return]

    async def _turn(self, reference: Any) -> Turn:
        try:
            turn: Turn = await reference
        except self._lost as error:
            raise WorkerLostError(str(error)) from None
        return turn


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
            signal.signal(signal.SIGTERM, handler)  # Ray takes it; ours ends a run in good order
