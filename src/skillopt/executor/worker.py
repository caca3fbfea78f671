"""One worker of a cluster: it has an env, does tasks, and asks the driver whenever a task needs a model.

A worker never calls the driver. It answers each message of the driver with the next thing that it needs (`Turn`), so
that the driver holds the conversation: it makes the call, journalled and paid for once, and comes back with the reply.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skillopt.envs.base import Env, Item, close_env, score_output
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill


@dataclass(frozen=True)
class Turn:
    """What a worker says: it needs a reply (`chat`), the result of a whole rollout (`whole`), has done the work that it
    was told to do (`did`), is `done`, or met an `error`; or it does not know of this task (`lost`)."""

    kind: Literal["chat", "whole", "did", "done", "error", "lost"]
    value: Any = None


@dataclass(frozen=True)
class Answer:
    """What the driver says: a `value` (a reply, a result), an `error` to raise in the env, or `do` the work."""

    kind: Literal["value", "error", "do"]
    value: Any = None


class Talk:
    """One task under way in a worker, seen from its env: a Chat that waits for the driver."""

    def __init__(self) -> None:
        self.turns: asyncio.Queue[Turn] = asyncio.Queue()
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        reply: ChatReply = (await self._ask(Turn("chat", (list(messages), list(tools))))).value
        return reply

    async def whole(self, identity: Sequence[Any], work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        answer = await self._ask(Turn("whole", list(identity)))
        while answer.kind == "do":
            try:
                turn = Turn("did", await work())
            except Exception as error:  # the driver decides whether it is worth another try
                turn = Turn("error", portable(error))
            answer = await self._ask(turn)
        result: dict[str, Any] = answer.value
        return result

    async def _ask(self, turn: Turn) -> Answer:
        self.turns.put_nowait(turn)
        answer = await self.answers.get()
        if answer.kind == "error":
            raise answer.value
        return answer


class EnvWorker:
    """The actor. `begin` and `say` return the task's next turn."""

    def __init__(self, make: Callable[[], Env]) -> None:
        os.environ["SKILLOPT_CORES"] = "1"  # what the cluster has given this worker; the others have theirs
        self._env = make()
        self._talks: dict[str, Talk] = {}

    async def ready(self) -> bool:
        return True

    async def begin(self, token: str, item: Item, skill: Skill) -> Turn:
        talk = self._talks[token] = Talk()
        talk.task = asyncio.create_task(self._work(talk, item, skill))
        return await self._next(token, talk)

    async def say(self, token: str, answer: Answer) -> Turn:
        talk = self._talks.get(token)
        if talk is None:
            return Turn("lost")
        talk.answers.put_nowait(answer)
        return await self._next(token, talk)

    async def _next(self, token: str, talk: Talk) -> Turn:
        turn = await talk.turns.get()
        if turn.kind == "done" or (turn.kind == "error" and talk.task and talk.task.done()):
            self._talks.pop(token, None)
        return turn

    async def _work(self, talk: Talk, item: Item, skill: Skill) -> None:
        """Do and score the task. What only a judge can score is scored by the driver, who has the model."""
        try:
            episode = await self._env.run(item, skill, talk)
            judged = hasattr(self._env, "judge")
            score = episode.score or (None if judged else await score_output(self._env, item, episode.output))
            turn = Turn("done", (episode, score))
        except Exception as error:  # whatever it is, it is the driver's to raise
            turn = Turn("error", portable(error))
        talk.turns.put_nowait(turn)

    def close(self) -> None:
        close_env(self._env)


def portable(error: Exception) -> Exception:
    """The error itself where it can travel between processes, else its words."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # exceptions with arguments of their own often cannot
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if isinstance(copy, type(error)) else RuntimeError(str(error))
