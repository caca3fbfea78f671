"""Does one task and scores it, in this process or in a pool of workers, each with its own env. Model calls, limiter,
budget and journal are always in this process."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from skillopt.errors import SkillOptError, Stopped, UserError
from skillopt.models.base import RefusedError
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Env, Episode, Item, Judge, Score, score_output
from skillopt.tasks.executor.worker import Turn

MOST_LOSSES = 3
"""The maximum number of workers that may be lost during one task; after that, the task is considered the cause."""
READY_WITHIN = 300.0
"""The maximum number of seconds that a worker may take to start and to open its env."""
OTHERS_WITHIN = 10.0
"""The maximum number of seconds to wait for further workers after the first one is ready. Without this wait, that
worker would get every waiting task."""


NewChat = Callable[[], Chat]
"""A function that makes a new Chat for a rollout. A rollout that is started again needs a new Chat, because it repeats
    all its requests from the first one; the replies come from the journal."""


class WorkerLostError(SkillOptError):
    """A worker's process or machine has ended during a task, so the task must be started again."""


class Executor:
    """Does tasks in this process, concurrently in its event loop. For the same task and replies, every executor returns
    the same result, or raises the same error of the model or scorer."""

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        episode = await env.run(item, skill, new_chat())
        return episode, episode.score or await score_output(env, item, episode.output, judge)


class RemoteWorker(ABC):
    """One worker; `load` is the number of tasks that it is doing now. `tell` sends a message to the worker and returns
    the worker's answer (EnvWorker.tell), or raises WorkerLostError."""

    load = 0

    @abstractmethod
    async def tell(self, token: int, message: bytes) -> bytes: ...

    @abstractmethod
    async def end(self) -> None: ...


class PooledExecutor(Executor, ABC):
    """Gives each task to the least busy worker. If that worker is lost, the task is started again on another one."""

    def __init__(self, workers: int, location: str, make: bytes) -> None:
        self._location, self._make = location, make
        self._tokens = itertools.count(1)
        self._slots = [asyncio.create_task(self._started()) for _ in range(workers)]
        """The asyncio tasks that start the workers. The result of each is the worker, or the error of the start."""

    @abstractmethod
    async def start(self) -> RemoteWorker:
        """Start one more worker, which has no env yet."""
        ...

    async def first(self) -> None:
        """Wait until one worker is ready; then wait a short time for the other workers."""
        await self._least_busy()
        await asyncio.wait(self._slots, timeout=OTHERS_WITHIN)

    async def close(self) -> None:
        for slot in self._slots:
            slot.cancel()
        for worker in await asyncio.gather(*self._slots, return_exceptions=True):
            if isinstance(worker, RemoteWorker):
                await worker.end()

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        for _ in range(MOST_LOSSES):
            try:
                worker = await self._least_busy()
            except UserError as error:
                raise Stopped(f"no worker is left on {self._location}: {error}") from None
            worker.load += 1
            try:
                episode, score = await do_task(worker, next(self._tokens), new_chat(), item, skill)
            except WorkerLostError:
                await self._replace(worker)
                continue
            finally:
                worker.load -= 1
            return episode, score or await score_output(env, item, episode.output, judge)
        raise RefusedError(f"item '{item.id}': its worker crashed {MOST_LOSSES} times; the item may be the cause")

    async def _started(self) -> RemoteWorker:
        """Start a worker and open its env. If one of the two fails, raises a UserError that says why."""
        try:
            async with asyncio.timeout(READY_WITHIN):
                worker = await self.start()
                try:
                    if trouble := await worker.tell(0, self._make):
                        raise UserError(trouble.decode())
                except BaseException:
                    await worker.end()
                    raise
        except UserError:
            raise
        except Exception as error:  # no process or memory left, a library's own errors: the caller must get the error
            raise UserError(f"a worker cannot start on {self._location}: {type(error).__name__}: {error}") from None
        return worker

    async def _least_busy(self) -> RemoteWorker:
        """The worker with the fewest tasks. If no worker is ready but some are starting, waits for them. If no worker
        could start, raises the UserError of the last one that failed."""
        while True:
            ended = [slot for slot in self._slots if slot.done()]
            if workers_ready := [slot.result() for slot in ended if slot.exception() is None]:
                return min(workers_ready, key=lambda worker: worker.load)
            if len(ended) == len(self._slots):
                return ended[-1].result()
            await asyncio.wait(set(self._slots) - set(ended), return_when=asyncio.FIRST_COMPLETED)

    async def _replace(self, lost: RemoteWorker) -> None:
        """Start a new worker in place of a lost one. Further calls for the same lost worker do nothing."""
        for index, slot in enumerate(self._slots):
            if slot.done() and slot.exception() is None and slot.result() is lost:
                self._slots[index] = asyncio.create_task(self._started())
                await lost.end()


async def do_task(
    worker: RemoteWorker, token: int, chat: Chat, item: Item, skill: Skill
) -> tuple[Episode, Score | None]:
    """Do one task on one worker: answer the worker's requests for model calls until the task is done."""

    async def until(end: str, message: Turn) -> Any:
        while True:
            turn = Turn.unpacked(await worker.tell(token, message.packed()))
            if turn.kind == "error":
                raise turn.value
            if turn.kind == end:
                return turn.value
            message = await answer(turn)

    async def answer(turn: Turn) -> Turn:
        try:
            if turn.kind == "chat":
                messages, tools = turn.value
                return Turn("value", await chat(messages, tools=tools))
            return Turn("value", await chat.opaque_rollout(turn.value, lambda: until("did", Turn("do"))))
        except WorkerLostError:
            raise
        except Exception as error:  # raise it in the env, which may handle it
            return Turn("error", error)

    return await until("done", Turn("begin", (item, skill)))  # type: ignore[no-any-return]
