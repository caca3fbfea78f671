"""The target as an env sees it: an object that makes the model calls of one rollout."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from pydantic import JsonValue

from skillopt.errors import Stopped
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    FatalError,
    JsonObject,
    Message,
    ModelSpec,
    ToolDefinition,
    TransientError,
    UnansweredError,
    Usage,
)
from skillopt.models.call import Caller, backoff, stop_on_disk_error, timed
from skillopt.record.journal import JournalRow

RETRIES = 2
"""The maximum number of retries of a rollout. It is small, because agents retry their own calls and a rollout may take
minutes."""

Work = Callable[[], Awaitable[JsonObject]]
_TOOLS = "skillopt:tools"
"""The field of a rollout's journal row that stores the tools that were offered to the target."""
_CALLS = "skillopt:calls"
"""The field of a rollout's journal row that stores the usage of each call (`BoundChat.calls`). So a replay counts the
same usage."""


class UnseenModel(ChatModel):
    """Stands in for the target if an agent makes its own model calls: `command:…`, `agent:…`."""

    def __init__(self, name: str) -> None:
        self.name = self.endpoint = name

    async def chat(self, request: ChatRequest) -> ChatReply:
        raise FatalError(f"{self.name}: is not a model that can be called; set models.target_model to a model")


def open_unseen(spec: ModelSpec) -> UnseenModel:
    return UnseenModel(spec.name)


class BoundChat:
    """A Chat (tasks/base.py) that labels each call with its rollout."""

    def __init__(self, caller: Caller, *, label: str, stage: str, low_priority: bool = False) -> None:
        self._caller = caller
        self._label = label
        self._stage = stage
        self._low_priority = low_priority
        self._turn = 0
        self.calls: list[dict[str, float]] = []
        """One entry per call, in order: its tokens, its seconds, and whether the reply was cut off. The seconds do not
        include waits for a slot or waits after a rejection."""
        self._waits: list[float] = []
        self.tools: list[ToolDefinition] = []
        """All tools that the target was offered."""

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> ChatReply:
        self._turn += 1
        self._offer(tools)
        started = time.monotonic()
        reply = await self._caller(
            messages,
            stage=self._stage,
            label=f"{self._label}/{self._turn}",
            turn=self._turn,
            tools=tools,
            low_priority=self._low_priority,
            waits=self._waits,
        )
        self._count(reply.usage, started, cut_off=reply.finish_reason == "length", seconds=reply.seconds)
        return reply

    def _offer(self, tools: Sequence[ToolDefinition]) -> None:
        self.tools += [{**tool} for tool in tools if tool not in self.tools]

    def _count(self, usage: Usage, started: float, *, cut_off: bool = False, seconds: float = 0.0) -> None:
        tokens = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached}
        tokens |= {"written": usage.written} if usage.written else {}
        reported = ({} if usage.usd is None else {"usd": usage.usd}) | ({"cut_off": 1.0} if cut_off else {})
        seconds = seconds or max(0.0, time.monotonic() - started - sum(self._waits))
        self._waits.clear()
        self.calls.append({**tokens, "seconds": round(seconds, 6), **reported})

    async def opaque_rollout(self, identity: Sequence[Any], work: Work) -> JsonObject:
        """Do a rollout whose model calls SkillOpt cannot see, or take its result from the journal
        (`Chat.opaque_rollout`)."""
        caller = self._caller
        label = "" if caller.deterministic else self._label
        text = json.dumps(["whole rollout", caller.model.endpoint, caller.model.name, *identity, label], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        started = time.monotonic()
        async with caller.rollout_lock(key):  # so a deterministic agent is not asked twice at the same time
            stored = caller.journal.get(key, 1)
            if stored is not None:
                caller.from_journal += 1
                if _CALLS in stored:
                    self.calls += stored[_CALLS]
                elif self._unseen or self._reported(stored):  # stored by an earlier version
                    self._count(_usage(stored), started)
                self._offer(stored.get(_TOOLS, ()))
                return {name: value for name, value in stored.items() if name not in {_TOOLS, _CALLS}}
            earlier = len(self.calls)
            async with caller.rollout_slots:
                started = time.monotonic()
                result = caller.clean(await self._tried(work))
            if self._unseen or self._reported(result):
                self._count(_usage(result), started)
            offered = cast("list[JsonValue]", caller.clean(self.tools))
            kept: JsonObject = {_CALLS: cast("list[JsonValue]", self.calls[earlier:])}
            with stop_on_disk_error(caller.switch):
                self._store(key, {**result, **kept, **({_TOOLS: offered} if offered else {})})
        return result

    async def _tried(self, work: Work) -> JsonObject:
        caller, hardware = self._caller, self._caller.hardware
        most, before, failures, first = min(RETRIES, hardware.max_retries), 0, 0, time.monotonic()
        for attempt in itertools.count():
            caller.switch.check()
            before = before if attempt else caller.opaque_rollouts
            self._turn = 0  # a second try sends the same requests and finds the replies to those of the first try
            try:
                result = await self._counted(work)
                caller.opaque_rollouts += 1
                return result
            except TransientError as error:
                caller.check_wait(error)
                trouble, wait = error, backoff(error, attempt)
                failures += not error.throttled
                if error.throttled:  # the item is not at fault; only the duration counts
                    if not most or time.monotonic() + wait - first > hardware.max_retry_seconds:
                        raise
                elif failures > most and caller.opaque_rollouts - before >= 3:
                    raise UnansweredError(f"{error}; all tries of this item failed, but other items worked") from None
                elif failures > most:
                    raise
            except (FatalError, Stopped) as error:
                caller.switch.trip(error)
                raise
            caller.retries += 1
            with caller.throttle.holding(trouble, wait), timed(self._waits):
                await caller.switch.sleep(wait)
        raise AssertionError("the last failed try raises")

    async def _counted(self, work: Work) -> JsonObject:
        """Do the work and count its usage. If the agent makes its own calls, the rollout counts as one call of the
        budget."""
        budget = self._caller.budget
        if not self._unseen:
            result = await work()
            if self._reported(result):
                budget.add(self._caller.model.name, _usage(result))
            return result
        with budget.call(self._caller.model.name, Usage()) as paid:
            result = await work()
            paid(_usage(result))
            return result

    def _store(self, key: str, result: JsonObject) -> None:
        caller, unseen = self._caller, self._unseen or self._reported(result)
        usage = _usage(result) if unseen else Usage()
        caller.journal.put(
            JournalRow(
                key=key,
                attempt=1,
                role=caller.role,
                stage=self._stage,
                model=caller.model.name,
                turn=int(self._turn == 0),
                reply=result,
                prompt_tokens=usage.prompt,
                completion_tokens=usage.completion,
                cached_tokens=usage.cached,
                usd=usage.usd,
                calls=int(unseen),
            )
        )

    def _reported(self, result: JsonObject) -> bool:
        """Did the agent report usage although it never called the model that it was given?"""
        return self._turn == 0 and bool(result.get("usage"))

    @property
    def _unseen(self) -> bool:
        return isinstance(self._caller.model, UnseenModel)


def _usage(result: JsonObject) -> Usage:
    used: dict[str, Any] = result.get("usage") or {}  # type: ignore[assignment]
    tokens = {name: int(used.get(name) or 0) for name in ("prompt", "completion", "cached")}
    return Usage(**tokens, usd=used.get("usd"))
