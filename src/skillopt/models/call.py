"""The one place through which every paid call goes: journal, limiter, budget, retry, journal."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from skillopt.config import BudgetConfig, HardwareConfig
from skillopt.errors import SkillOptError, Stopped
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    FatalError,
    Message,
    RefusedError,
    Schema,
    TransientError,
    Usage,
)
from skillopt.run.journal import Journal, Record, Total

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""Seconds that one wait before a retry takes at most, whatever the endpoint asks for."""


class Switch:
    """Lets no new call start once something has ended the run. Calls in flight finish and are kept."""

    def __init__(self) -> None:
        self.reason: SkillOptError | None = None
        self._tripped = asyncio.Event()

    def trip(self, reason: SkillOptError) -> None:
        if self.reason is None:
            self.reason = reason
            self._tripped.set()

    def check(self) -> None:
        if self.reason is not None:
            raise self.reason

    async def sleep(self, seconds: float) -> None:
        """Sleep, but not past the end of the run."""
        try:
            await asyncio.wait_for(self._tripped.wait(), seconds)
        except TimeoutError:
            return
        self.check()


class Limiter:
    """At most `limit` calls in flight, and none while the endpoint has asked for a pause."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self._slots = asyncio.Semaphore(limit)
        self._not_before = 0.0

    def pause(self, seconds: float) -> None:
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    @asynccontextmanager
    async def slot(self, switch: Switch) -> AsyncIterator[None]:
        async with self._slots:
            while (wait := self._not_before - time.monotonic()) > 0:
                await switch.sleep(wait)
            switch.check()
            self.in_flight += 1
            try:
                yield
            finally:
                self.in_flight -= 1


class Budget:
    """What was paid, by the journal's count, and what may still be. A call is counted before it is sent."""

    def __init__(self, config: BudgetConfig, journal: Journal) -> None:
        self._config = config
        self._journal = journal
        self._started = time.monotonic()
        totals = journal.totals()
        self._calls = sum(total.calls for total in totals)
        self._tokens = sum(total.prompt_tokens + total.completion_tokens for total in totals)
        self._usd = sum(self.cost(total) or 0.0 for total in totals)

    def cost(self, total: Total) -> float | None:
        """Dollars, or None where the model's price is unknown. What runs on this machine costs nothing."""
        price = self._config.prices.get(total.model)
        if price is None:
            return 0.0 if total.model.startswith(("sim:", "local:")) else None
        return (total.prompt_tokens * price.input + total.completion_tokens * price.output) / 1e6

    def reserve(self) -> None:
        limits = self._config
        minutes = (time.monotonic() - self._started) / 60
        for name, used, limit in (
            ("max_calls", self._calls, limits.max_calls),
            ("max_tokens", self._tokens, limits.max_tokens),
            ("max_usd", self._usd, limits.max_usd),
            ("max_minutes", minutes, limits.max_minutes),
        ):
            if limit is not None and used >= limit:
                raise Stopped(f"budget.{name}: the limit of {limit:g} is reached; raise it to go on")
        self._calls += 1

    def give_back(self) -> None:
        """A call that got no reply was not paid for."""
        self._calls -= 1

    def settle(self, model: str, usage: Usage) -> None:
        self._tokens += usage.prompt + usage.completion
        paid = Total(
            role="",
            stage="",
            model=model,
            calls=1,
            first_turns=0,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cached_tokens=usage.cached,
        )
        self._usd += self.cost(paid) or 0.0


@dataclass(kw_only=True)
class Caller:
    """One role's model (target or optimizer) with all that surrounds a call."""

    model: ChatModel
    role: str
    journal: Journal
    limiter: Limiter
    budget: Budget
    switch: Switch
    hardware: HardwareConfig
    deterministic: bool
    temperature: float | None = None
    max_tokens: int | None = None
    from_journal: int = 0
    """Replies that were there already."""
    retries: int = 0
    _reached: bool = False
    _in_flight: dict[tuple[str, int], asyncio.Future[ChatReply]] = field(default_factory=dict)

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        label: str,
        schema: Schema | None = None,
        attempt: int = 1,
        turn: int = 1,
    ) -> ChatReply:
        """The reply, from the journal or paid for.

        `label` names the purpose of the sample (split, item, step, repeat). A noisy model gives a fresh sample for
        each; a deterministic one is never asked the same twice, whatever the label.
        """
        label = "" if self.deterministic else label
        request = ChatRequest(
            messages=tuple(messages),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            schema=schema,
            seed=int(hashlib.sha256(label.encode()).hexdigest()[:7], 16) if label else None,
        )
        key = self._key(request, label)
        stored = self.journal.get(key, attempt)
        if stored is not None:
            self.from_journal += 1
            return _reply_from(stored)
        if (key, attempt) in self._in_flight:
            return await asyncio.shield(self._in_flight[key, attempt])
        future: asyncio.Future[ChatReply] = asyncio.get_running_loop().create_future()
        self._in_flight[key, attempt] = future
        try:
            reply = await self._paid(request)
            self._store(key, attempt, stage, turn, reply)
            future.set_result(reply)
            return reply
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # nobody else may be waiting for it
            raise
        finally:
            del self._in_flight[key, attempt]

    def _key(self, request: ChatRequest, label: str) -> str:
        parts = [
            self.model.endpoint,
            self.model.name,
            request.messages,
            request.temperature,
            request.max_tokens,
            asdict(request.schema) if request.schema else None,
            label,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _store(self, key: str, attempt: int, stage: str, turn: int, reply: ChatReply) -> None:
        self.journal.put(
            Record(
                key=key,
                attempt=attempt,
                role=self.role,
                stage=stage,
                model=self.model.name,
                turn=turn,
                reply=asdict(reply),
                prompt_tokens=reply.usage.prompt,
                completion_tokens=reply.usage.completion,
                cached_tokens=reply.usage.cached,
            )
        )
        self.budget.settle(self.model.name, reply.usage)

    async def _paid(self, request: ChatRequest) -> ChatReply:
        """Try until there is a reply, or no hope of one."""
        for attempt in range(self.hardware.max_retries + 1):
            async with self.limiter.slot(self.switch):
                try:
                    return await self._once(request)
                except TransientError as error:
                    self._give_up(error, attempt)
                    wait = error.retry_after if error.retry_after is not None else 0.5 * 2**attempt
                    wait = min(LONGEST_WAIT, wait)
                    if error.retry_after:
                        self.limiter.pause(wait)
                except (FatalError, Stopped) as error:
                    self.switch.trip(error)
                    raise
            self.retries += 1
            await self.switch.sleep(wait * (1 + random.random() / 4))  # noqa: S311 - only spreads retries
        raise AssertionError("the last failed try raises")

    async def _once(self, request: ChatRequest) -> ChatReply:
        self.budget.reserve()
        try:
            async with asyncio.timeout(self.hardware.call_timeout):
                reply = await self.model.chat(request)
        except TimeoutError:
            self.budget.give_back()
            raise TransientError(f"no answer within {self.hardware.call_timeout:g} s") from None
        except (TransientError, FatalError, RefusedError):
            self.budget.give_back()
            raise
        self._reached = True
        return reply

    def _give_up(self, error: TransientError, attempt: int) -> None:
        """Raise where another try is not worth it."""
        if not error.reached and not self._reached and attempt >= 2:
            fatal = FatalError(f"{self.role}: {error}; is the server running, and the URL right?")
            self.switch.trip(fatal)
            raise fatal
        if attempt == self.hardware.max_retries:
            raise TransientError(f"{self.role}: {error} (after {attempt + 1} tries)", reached=error.reached)


def _reply_from(stored: dict[str, Any]) -> ChatReply:
    return ChatReply(**{**stored, "usage": Usage(**stored["usage"])})


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all to their end, then raise the first error: what is in flight is paid for and must be kept."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
