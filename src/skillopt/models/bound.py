"""The target bound to one rollout: what an env is given to do a task with."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from skillopt.errors import Stopped
from skillopt.models.base import ChatReply, ChatRequest, FatalError, Message, RefusedError, TransientError, Usage
from skillopt.models.call import Caller, backoff, kept
from skillopt.run.journal import Record

RETRIES = 2
"""Of a whole rollout: an agent retries by itself, and what it does may take minutes."""

Work = Callable[[], Awaitable[dict[str, Any]]]


class UnseenModel:
    """Takes the place of the model for an agent that calls models by itself: `command:…`, `agent:…`."""

    deterministic = False

    def __init__(self, name: str) -> None:
        self.name = self.endpoint = name

    async def chat(self, request: ChatRequest) -> ChatReply:
        raise FatalError(f"{self.name}: is not a model that can be called; name one in models.target_model")

    async def close(self) -> None:
        return


class BoundChat:
    """A Chat (envs/base.py) that names every call by the rollout that it is made for."""

    def __init__(self, caller: Caller, *, label: str, stage: str, later: bool = False) -> None:
        self._caller = caller
        self._label = label
        self._stage = stage
        self._later = later
        self._turn = 0
        self.calls: list[dict[str, Any]] = []
        """What each call took, in order: tokens, and the seconds until its reply was there."""

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        self._turn += 1
        started = time.monotonic()
        reply = await self._caller(
            messages,
            stage=self._stage,
            label=f"{self._label}/{self._turn}",
            turn=self._turn,
            tools=tools,
            later=self._later,
        )
        self._count(reply.usage, started)
        return reply

    def _count(self, usage: Usage, started: float) -> None:
        tokens = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached}
        self.calls.append({**tokens, "seconds": round(time.monotonic() - started, 3)})

    async def whole(self, identity: Sequence[Any], work: Work) -> dict[str, Any]:
        """A rollout whose model calls we cannot see, journalled as one; see Chat.whole."""
        caller = self._caller
        label = "" if caller.deterministic else self._label
        text = json.dumps(["whole rollout", caller.model.endpoint, caller.model.name, *identity, label], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        started = time.monotonic()
        async with caller.whole_lock(key):  # a deterministic agent is not asked twice at the same time, either
            stored = caller.journal.get(key, 1)
            if stored is not None:
                caller.from_journal += 1
                if self._unseen:
                    self._count(_usage(stored), started)
                return stored
            async with caller.whole_slots:
                result = caller.clean(await self._tried(work))
            with kept(caller.switch):
                self._store(key, result)
        if self._unseen:
            self._count(_usage(result), started)
        return result

    async def _tried(self, work: Work) -> dict[str, Any]:
        caller, hardware = self._caller, self._caller.hardware
        most, before, failures, first = min(RETRIES, hardware.max_retries), 0, 0, time.monotonic()
        for attempt in itertools.count():
            caller.switch.check()
            before = before if attempt else caller.whole_done
            self._turn = 0  # a second try asks the same again, and finds what the first was answered
            try:
                result = await self._counted(work)
                caller.whole_done += 1
                return result
            except TransientError as error:
                trouble, wait = error, backoff(error, attempt)
                failures += not error.throttled
                if error.throttled:  # says nothing of the item; only how long it lasts counts
                    if not most or time.monotonic() + wait - first > hardware.max_retry_seconds:
                        raise
                elif failures > most and caller.whole_done - before >= 3:
                    raise RefusedError(f"{error}; this item always fails, while others are done") from None
                elif failures > most:
                    raise
            except (FatalError, Stopped) as error:
                caller.switch.trip(error)
                raise
            caller.retries += 1
            with caller.throttle.holding(trouble, wait):
                await caller.switch.sleep(wait)
        raise AssertionError("the last failed try raises")

    async def _counted(self, work: Work) -> dict[str, Any]:
        """Where the agent's calls are its own, the rollout counts as one call of the budget."""
        budget = self._caller.budget
        if not self._unseen:
            result = await work()
            if self._reported(result):
                budget.add(self._caller.model.name, _usage(result))
            return result
        reserved = budget.reserve(self._caller.model.name, Usage())
        try:
            result = await work()
        except BaseException:
            budget.give_back(reserved)
            raise
        budget.settle(reserved, _usage(result))
        return result

    def _store(self, key: str, result: dict[str, Any]) -> None:
        caller, unseen = self._caller, self._unseen or self._reported(result)
        usage = _usage(result) if unseen else Usage()
        caller.journal.put(
            Record(
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

    def _reported(self, result: Mapping[str, Any]) -> bool:
        """Did the agent leave out the model that it was given, and say what its own calls took?"""
        return self._turn == 0 and bool(result.get("usage"))

    @property
    def _unseen(self) -> bool:
        return isinstance(self._caller.model, UnseenModel)


def _usage(result: Mapping[str, Any]) -> Usage:
    used = result.get("usage") or {}
    tokens = {kind: int(used.get(kind) or 0) for kind in ("prompt", "completion", "cached")}
    return Usage(**tokens, usd=used.get("usd"))
