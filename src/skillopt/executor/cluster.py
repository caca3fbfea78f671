"""Tasks on a Ray cluster: each CPU has a worker with its own env. Calls, limiter, budget and journal are here."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from skillopt.config import HardwareConfig
from skillopt.envs.base import Chat, Env, Episode, Item, Judge, Score, score_output
from skillopt.errors import Stopped, UserError
from skillopt.executor.base import NewChat, WorkerLostError
from skillopt.executor.worker import DriverReply, EnvWorker, Turn, packed, unpacked
from skillopt.models.base import RefusedError
from skillopt.skill import Skill

MOST_LOSSES = 3
"""How many workers one task may lose before it is considered the cause."""
READY_WITHIN = 300.0
"""Seconds until a worker has opened its env."""
OTHERS_WITHIN = 10.0
"""Seconds that the first worker waits for the others, so that not all of the first tasks go to it."""


class RayExecutor:
    """A pool of workers. A task goes to the least busy one; if that is lost, the task is begun again elsewhere."""

    def __init__(self, ray: Any, make: Callable[[], Env], workers: int, *, started: bool) -> None:
        self._ray = ray
        self._actor = ray.remote(EnvWorker).options(num_cpus=1, max_concurrency=1000)
        self._make = ray.put(make)
        self._started = started
        self._lines: list[Line] = []
        self._changed = asyncio.Condition()
        self._tokens = itertools.count()
        self._skills: OrderedDict[str, Any] = OrderedDict()
        self._trouble: Exception | None = None
        self._hiring = {asyncio.create_task(self._hire()) for _ in range(workers)}

    @classmethod
    async def open(cls, hardware: HardwareConfig, workers: int, make: Callable[[], Env]) -> RayExecutor:
        ray = _import_ray()
        started = not ray.is_initialized()
        if started:
            _connect(ray, hardware.ray_address)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        executor = cls(ray, make, max(1, min(cpus, workers)), started=started)
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
        for line in self._lines:
            self._ray.kill(line.worker)
        if self._started:
            self._ray.shutdown()

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        for _ in range(MOST_LOSSES):
            line = await self._least_busy()
            line.load += 1
            try:
                conversation = Conversation(line, str(next(self._tokens)), new_chat())
                episode, score = await conversation.held(item, self._stored(skill))
            except WorkerLostError:
                self._dismiss(line)
                continue
            finally:
                line.load -= 1
            return episode, score or await score_output(env, item, episode.output, judge)
        raise RefusedError(f"item '{item.id}': lost its worker {MOST_LOSSES} times; it may be what ends them")

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
            await self._changed.wait_for(lambda: self._lines or self._trouble)
        if not self._lines and self._trouble:
            raise self._trouble
        await asyncio.wait(self._hiring, timeout=OTHERS_WITHIN)

    async def _least_busy(self) -> Line:
        async with self._changed:
            await self._changed.wait_for(lambda: self._lines or self._trouble)
        if not self._lines:
            assert self._trouble
            raise Stopped(f"no worker is left on the cluster: {self._trouble}")
        return min(self._lines, key=lambda line: line.load)

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
            self._lines.append(Line(worker, self._ray.exceptions.RayError))
        async with self._changed:
            self._changed.notify_all()

    def _dismiss(self, line: Line) -> None:
        """A lost worker leaves the pool once, and another is hired for it."""
        if line in self._lines:
            self._lines.remove(line)
            self._ray.kill(line.worker)
            task = asyncio.create_task(self._hire())
            self._hiring.add(task)
            task.add_done_callback(self._hiring.discard)


class Line:
    """One worker, and how many tasks it has."""

    def __init__(self, worker: Any, lost: type[Exception]) -> None:
        self.worker, self.load = worker, 0
        self._lost = lost

    async def turn(self, sent: Awaitable[bytes]) -> Turn:
        """What the worker returns for a message; raises WorkerLostError where it is gone."""
        try:
            return unpacked(await sent, Turn)
        except self._lost as error:
            raise WorkerLostError(str(error)) from None


class Conversation:
    """One task on one worker: its turns are answered until it is done."""

    def __init__(self, line: Line, token: str, chat: Chat) -> None:
        self._line, self._token, self._chat = line, token, chat

    async def held(self, item: Item, skill: Any) -> tuple[Episode, Score | None]:
        turn = await self._line.turn(self._line.worker.begin.remote(self._token, item, skill))
        return await self._until("done", turn)  # type: ignore[no-any-return]

    async def _until(self, end: str, turn: Turn) -> Any:
        while turn.kind != end:
            if turn.kind == "error":
                raise turn.value
            if turn.kind == "lost":
                raise WorkerLostError("the worker was restarted")
            turn = await self._send(await self._answer(turn))
        return turn.value

    async def _send(self, answer: DriverReply) -> Turn:
        return await self._line.turn(self._line.worker.answer.remote(self._token, packed(answer)))

    async def _answer(self, turn: Turn) -> DriverReply:
        try:
            if turn.kind == "chat":
                messages, tools = turn.value
                return DriverReply("value", await self._chat(messages, tools=tools))
            return DriverReply("value", await self._chat.whole(turn.value, self._work))
        except WorkerLostError:
            raise
        except Exception as error:  # it is raised in the env, which may know what to do with it
            return DriverReply("error", error)

    async def _work(self) -> dict[str, Any]:
        """The worker does a whole rollout's work; what it asks for meanwhile is answered."""
        return await self._until("did", await self._send(DriverReply("do")))  # type: ignore[no-any-return]


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
