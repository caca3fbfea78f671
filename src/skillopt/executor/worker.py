"""One worker of a cluster: it has an env, does tasks, and asks the driver whenever a task needs a model.

A worker never calls the driver. It returns what each of its tasks needs next (`Turn`). The driver makes the calls,
journalled and paid for once, and sends the replies (`DriverReply`). A message through Ray takes 2 ms of CPU and more,
so messages of many tasks are combined: the driver sends answers, and gets all turns that are due.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from skillopt.envs.base import Env, Item, score_output
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill

HELD = 0.1
"""Seconds that a turn waits for others at most."""
VISITS = 2
"""Exchanges that wait for turns; the next one sends the first of them home with nothing."""


@dataclass(frozen=True)
class Turn:
    """What a worker says: it needs a reply (`chat`), the result of a whole rollout (`whole`), has done the work that it
    was asked to do (`did`), is `done`, or met an `error`; or it does not know of this task (`lost`)."""

    kind: Literal["chat", "whole", "did", "done", "error", "lost"]
    value: Any = None


@dataclass(frozen=True)
class DriverReply:
    """What the driver says: a `value` (a reply, a result), an `error` to raise in the env, or `do` the work."""

    kind: Literal["value", "error", "do"]
    value: Any = None


Said = TypeVar("Said", Turn, DriverReply)


class Talk:
    """One task under way in a worker, seen from its env: a Chat that waits for the driver."""

    def __init__(self, say: Callable[[Turn], None]) -> None:
        self._say = say
        self.answers: asyncio.Queue[DriverReply] = asyncio.Queue()

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        reply: ChatReply = (await self._ask(Turn("chat", (list(messages), list(tools))))).value
        return reply

    async def whole(self, identity: Sequence[Any], work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        answer = await self._ask(Turn("whole", list(identity)))
        while answer.kind == "do":
            try:
                turn = Turn("did", await work())
            except Exception as error:  # the driver decides whether it is worth another try
                turn = Turn("error", error)
            answer = await self._ask(turn)
        result: dict[str, Any] = answer.value
        return result

    async def _ask(self, turn: Turn) -> DriverReply:
        self._say(turn)
        answer = await self.answers.get()
        if answer.kind == "error":
            raise answer.value
        return answer


class EnvWorker:
    """The actor. Ray runs its methods, and so its tasks, side by side in one event loop."""

    def __init__(self, make: Callable[[], Env]) -> None:
        os.environ["SKILLOPT_CORES"] = "1"  # what the cluster has given this worker; the others have theirs
        self._env = make()
        self._talks: dict[str, Talk] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._said: list[tuple[str, bytes]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._visits: deque[asyncio.Future[bytes]] = deque()

    async def ready(self) -> bool:
        return True

    async def begin(self, token: str, item: Item, skill: Skill) -> None:
        self._busy += 1
        talk = self._talks[token] = Talk(partial(self._say, token))
        task = asyncio.create_task(self._work(token, talk, item, skill))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def exchange(self, answers: bytes) -> bytes:
        """Answers for turns, both as lists with the tasks' tokens. There may be none, of either."""
        brought: list[tuple[str, bytes]] = pickle.loads(answers)  # noqa: S301 - our own driver's
        self._busy += len(brought)
        for token, answer in brought:
            if token in self._talks:
                self._talks[token].answers.put_nowait(unpacked(answer, DriverReply))
            else:
                self._say(token, Turn("lost"))
        visit: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._visits.append(visit)
        if len(self._visits) > VISITS:
            self._visits.popleft().set_result(pickle.dumps([]))
        self._hand_over()
        return await visit

    def _say(self, token: str, turn: Turn) -> None:
        self._busy -= 1
        self._said.append((token, packed(turn)))
        self._hand_over()

    def _hand_over(self) -> None:
        """Turns are due at once, unless more tasks are at work here than have spoken: they keep the worker busy, and
        what they will say soon can go along."""
        if not self._said or not self._visits:
            return
        if len(self._said) < self._busy and not self._waited():
            return
        self._visits.popleft().set_result(pickle.dumps(self._said))
        self._said = []
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _waited(self) -> bool:
        """Has the first of the turns waited long enough?"""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HELD, self._hand_over)
        return asyncio.get_running_loop().time() >= self._timer.when() - 0.001

    async def _work(self, token: str, talk: Talk, item: Item, skill: Skill) -> None:
        """Do and score the task. What only a judge can score is scored by the driver, which has the model."""
        try:
            episode = await self._env.run(item, skill, talk)
            judged = hasattr(self._env, "judge")
            score = episode.score or (None if judged else await score_output(self._env, item, episode.output))
            turn = Turn("done", (episode, score))
        except Exception as error:  # whatever it is, it is the driver's to raise
            turn = Turn("error", error)
        del self._talks[token]
        self._say(token, turn)


def packed(said: Turn | DriverReply) -> bytes:
    """What cannot be sent is an error of that task alone, and does not affect the others."""
    try:
        if said.kind == "error":
            said = replace(said, value=portable(said.value))
        return pickle.dumps(said)
    except Exception as error:  # whatever an env's own classes raise
        return pickle.dumps(replace(said, kind="error", value=RuntimeError(f"cannot be sent: {error}")))


def unpacked(data: bytes, kind: type[Said]) -> Said:
    try:
        said: Said = pickle.loads(data)  # noqa: S301 - our own bytes
    except Exception as error:  # a class that is not known here
        return kind("error", RuntimeError(f"cannot be read: {error}"))
    return said


def portable(error: Exception) -> Exception:
    """The error itself if it can be sent between processes, else its message."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # exceptions with custom arguments often cannot
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if isinstance(copy, type(error)) else RuntimeError(str(error))
