"""The code inside a worker: it has an env, does tasks, and lets the main process make the model calls.

A worker never calls the main process. It answers each message about a task with the next request of that task. The main
process makes the model call, which is journalled and paid for once, and sends the reply as the next message.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skillopt.errors import UserError
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill
from skillopt.tasks.base import Env, Item, Json, ToolDefinition, is_judged, score_output


@dataclass(frozen=True)
class Turn:
    """A message between a worker and the main process.

    The worker sends `chat` (it asks for a reply), `whole` (it asks for the result of a whole rollout), `did` (after
    `do`: the result of the rollout), `done` (the result of the task) or `error`. The main process sends `begin` (a
    task), `value` (a reply or a result), `error` (to raise in the env) or `do` (after `whole`: the worker must do the
    rollout itself).
    """

    kind: Literal["chat", "whole", "did", "done", "error", "begin", "value", "do"]
    value: Any = None

    def packed(self) -> bytes:
        """The message as bytes. A message that cannot be sent becomes an error of its task; other tasks go on."""
        try:
            data = pickle.dumps(self)
            if self.kind == "error":
                pickle.loads(data)  # noqa: S301 - our own bytes; exceptions with custom arguments fail only here
        except Exception as error:  # any error of an env's classes
            cause = self.value if self.kind == "error" else error
            message = f"{type(cause).__name__}: {cause}"
            return Turn(
                "error",
                RuntimeError(message if self.kind == "error" else f"the task's message cannot be sent: {message}"),
            ).packed()
        return data

    @staticmethod
    def unpacked(data: bytes) -> Turn:
        try:
            turn: Turn = pickle.loads(data)  # noqa: S301 - our own bytes
        except Exception as error:  # the class cannot be imported here
            return Turn("error", RuntimeError(f"the task's message cannot be read: {error}"))
        return turn


class Talk:
    """The Chat of one task in a worker: it passes each call on to the main process and waits for the reply."""

    def __init__(self) -> None:
        self.turns: asyncio.Queue[Turn] = asyncio.Queue()
        self.answers: asyncio.Queue[Turn] = asyncio.Queue()

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> ChatReply:
        reply: ChatReply = (await self._ask(Turn("chat", (list(messages), list(tools))))).value
        return reply

    async def opaque_rollout(self, identity: Sequence[Any], work: Callable[[], Awaitable[Json]]) -> Json:
        answer = await self._ask(Turn("whole", list(identity)))
        while answer.kind == "do":
            try:
                turn = Turn("did", await work())
            except Exception as error:  # the main process decides whether to try again
                turn = Turn("error", error)
            answer = await self._ask(turn)
        result: Json = answer.value
        return result

    async def _ask(self, turn: Turn) -> Turn:
        self.turns.put_nowait(turn)
        answer = await self.answers.get()
        if answer.kind == "error":
            raise answer.value
        return answer


class EnvWorker:
    """Does several tasks at once in one event loop. On a Ray cluster, an `EnvWorker` is an actor."""

    env: Env

    def __init__(self) -> None:
        os.environ["SKILLOPT_CORES"] = "1"  # only the CPUs that the cluster gave to this worker
        self._talks: dict[int, Talk] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def _open(self, message: bytes) -> bytes:
        """Open the env. Returns why it could not be opened; an empty text if it could."""
        try:
            folders, make = pickle.loads(message)  # noqa: S301 - our own bytes
            sys.path[:] = [*(folder for folder in folders if folder not in sys.path), *sys.path]
            self.env = pickle.loads(make)()  # noqa: S301 - only now can the user's modules be imported
        except Exception as error:  # any error of the env's code
            return (str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}").encode()
        return b""

    async def tell(self, token: int, message: bytes) -> bytes:
        """Take the main process's message about a task; return the task's next message. The token 0 opens the env."""
        if not token:
            return self._open(message)
        turn = Turn.unpacked(message)
        if turn.kind == "begin":
            self._talks[token] = Talk()
            task = asyncio.create_task(self._work(token, *turn.value))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif token in self._talks:
            self._talks[token].answers.put_nowait(turn)
        else:  # the task could not be read
            return turn.packed()
        return (await self._talks[token].turns.get()).packed()

    async def _work(self, token: int, item: Item, skill: Skill) -> None:
        """Do the task and score it. If a judge scores, the main process does the scoring, because it has the judge's
        model."""
        talk = self._talks[token]
        try:
            episode = await self.env.run(item, skill, talk)
            score = episode.score or (
                None if is_judged(self.env) else await score_output(self.env, item, episode.output)
            )
            turn = Turn("done", (episode, score))
        except Exception as error:  # the main process raises it
            turn = Turn("error", error)
        del self._talks[token]
        talk.turns.put_nowait(turn)
