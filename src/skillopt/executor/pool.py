"""A pool of workers, each with its own env, wherever they are. Calls, limiter, budget and journal are here."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from typing import Any

from skillopt.envs.base import Chat, Env, Episode, Item, Judge, Score, score_output
from skillopt.errors import Stopped, UserError
from skillopt.executor.base import NewChat, WorkerLostError
from skillopt.executor.worker import DriverReply, Turn, packed, unpacked
from skillopt.models.base import RefusedError
from skillopt.skill import Skill

MOST_LOSSES = 3
"""How many workers one task may lose before it is considered the cause."""
READY_WITHIN = 300.0
"""Seconds until a worker has opened its env."""
OTHERS_WITHIN = 10.0
"""Seconds that the first worker waits for the others, so that not all of the first tasks go to it."""


class Line(ABC):
    """One worker, and how many tasks it has. Its methods raise WorkerLostError where the worker is gone."""

    def __init__(self) -> None:
        self.load = 0

    @abstractmethod
    async def begin(self, token: str, item: Item, skill: Skill) -> bytes: ...

    @abstractmethod
    async def answer(self, token: str, answer: bytes) -> bytes: ...

    @abstractmethod
    async def end(self) -> None: ...


class Pool(ABC):
    """A task goes to the least busy worker; if that is lost, the task is begun again on another."""

    def __init__(self, workers: int, place: str) -> None:
        self._place = place
        self._lines: list[Line] = []
        self._changed = asyncio.Condition()
        self._tokens = itertools.count()
        self._trouble: Exception | None = None
        self._hiring = {asyncio.create_task(self._hire()) for _ in range(workers)}

    @abstractmethod
    async def start(self) -> Line:
        """One more worker that has opened its env; raises UserError where there can be none."""
        ...

    async def first(self) -> None:
        """Wait until there is a worker, and a little for the others."""
        try:
            await self._some()
            if not self._lines and self._trouble:
                raise self._trouble
            await asyncio.wait(self._hiring, timeout=OTHERS_WITHIN)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for task in self._hiring:
            task.cancel()
        await asyncio.gather(*self._hiring, return_exceptions=True)
        for line in self._lines:
            await line.end()

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        for _ in range(MOST_LOSSES):
            line = await self._least_busy()
            line.load += 1
            try:
                episode, score = await Conversation(line, str(next(self._tokens)), new_chat()).held(item, skill)
            except WorkerLostError:
                await self._dismiss(line)
                continue
            finally:
                line.load -= 1
            return episode, score or await score_output(env, item, episode.output, judge)
        raise RefusedError(f"item '{item.id}': lost its worker {MOST_LOSSES} times; it may be what ends them")

    async def _some(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._lines or self._trouble)

    async def _least_busy(self) -> Line:
        await self._some()
        if not self._lines:
            raise Stopped(f"no worker is left on {self._place}: {self._trouble}")
        return min(self._lines, key=lambda line: line.load)

    async def _hire(self) -> None:
        """One more worker joins the pool as soon as it has opened its env."""
        try:
            self._lines.append(await self.start())
        except UserError as error:
            self._trouble = error
        async with self._changed:
            self._changed.notify_all()

    async def _dismiss(self, line: Line) -> None:
        """A lost worker leaves the pool once, and another is hired for it."""
        if line in self._lines:
            self._lines.remove(line)
            await line.end()
            task = asyncio.create_task(self._hire())
            self._hiring.add(task)
            task.add_done_callback(self._hiring.discard)


class Conversation:
    """One task on one worker: its turns are answered until it is done."""

    def __init__(self, line: Line, token: str, chat: Chat) -> None:
        self._line, self._token, self._chat = line, token, chat

    async def held(self, item: Item, skill: Skill) -> tuple[Episode, Score | None]:
        turn = unpacked(await self._line.begin(self._token, item, skill), Turn)
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
        return unpacked(await self._line.answer(self._token, packed(answer)), Turn)

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
