"""One worker of a cluster: it has an env, does tasks, and asks the driver whenever a task needs a model.

A worker never calls the driver. It returns what a task needs next (`Turn`). The driver makes the call, journalled and
paid for once, and sends the reply (`DriverReply`), for which it gets the next turn.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from skillopt.envs.base import Env, Item, score_output
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill


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

    def __init__(self) -> None:
        self.turns: asyncio.Queue[Turn] = asyncio.Queue()
        self._answers: asyncio.Queue[DriverReply] = asyncio.Queue()

    async def next_turn(self, answer: DriverReply | None = None) -> bytes:
        """What the task needs next, after the answer to what it needed before."""
        if answer:
            self._answers.put_nowait(answer)
        return packed(await self.turns.get())

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
        self.turns.put_nowait(turn)
        answer = await self._answers.get()
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

    async def ready(self) -> bool:
        return True

    async def begin(self, token: str, item: Item, skill: Skill) -> bytes:
        talk = self._talks[token] = Talk()
        task = asyncio.create_task(self._work(token, talk, item, skill))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await talk.next_turn()

    async def answer(self, token: str, answer: bytes) -> bytes:
        if token not in self._talks:
            return packed(Turn("lost"))
        return await self._talks[token].next_turn(unpacked(answer, DriverReply))

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
        talk.turns.put_nowait(turn)


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
