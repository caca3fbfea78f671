"""What a rollout takes: tokens and seconds, also of one whose replies come from a journal."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skillopt.envs.base import Chat, Env, Episode, Item, Judge, Score
from skillopt.executor import Executor, NewChat
from skillopt.models.base import ChatReply, Message
from skillopt.run.files import append_jsonl, read_jsonl
from skillopt.skill import Skill


@dataclass
class Reading:
    """One rollout's meter."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    seconds: float = 0.0
    usd: float | None = None
    """What the agent itself says that it cost."""

    def add(self, prompt: int, completion: int, cached: int, usd: float | None = None) -> None:
        self.prompt += prompt
        self.completion += completion
        self.cached += cached
        if usd is not None:
            self.usd = (self.usd or 0.0) + usd


class Meter:
    """All rollouts' readings, kept in a file: what is measured once is known when its replies come from the journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = {row.pop("key"): Reading(**row) for row in read_jsonl(path)}
        self._new: dict[str, Reading] = {}

    def around(self, executor: Executor, key: str) -> Executor:
        """An executor that takes the reading of one rollout."""
        return _Metered(executor, self, key)

    def get(self, key: str) -> Reading:
        return self._known.get(key) or Reading()

    def keep(self, key: str, reading: Reading) -> None:
        if key not in self._known:
            self._known[key] = self._new[key] = reading

    def flush(self) -> None:
        append_jsonl(self._path, [{"key": key, **asdict(reading)} for key, reading in self._new.items()])
        self._new.clear()


@dataclass(frozen=True)
class _Metered:
    executor: Executor
    meter: Meter
    key: str

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        reading = Reading()

        def metered() -> Chat:
            """A rollout that is begun again begins its reading again."""
            reading.prompt = reading.completion = reading.cached = 0
            reading.usd = None
            return _MeteredChat(new_chat(), reading)

        started = time.monotonic()
        done = await self.executor.run(env, item, skill, metered, judge)
        reading.seconds = round(time.monotonic() - started, 4)
        self.meter.keep(self.key, reading)
        return done


@dataclass(frozen=True)
class _MeteredChat:
    chat: Chat
    reading: Reading

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        reply = await self.chat(messages, tools=tools)
        self.reading.add(reply.usage.prompt, reply.usage.completion, reply.usage.cached, reply.usage.usd)
        return reply

    async def whole(self, identity: Sequence[Any], work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        result = await self.chat.whole(identity, work)
        used = result.get("usage") or {}
        prompt, completion, cached = (int(used.get(kind) or 0) for kind in ("prompt", "completion", "cached"))
        if not any((self.reading.prompt, self.reading.completion)):  # calls through the chat are counted already
            self.reading.add(prompt, completion, cached, used.get("usd"))
        return result
