"""Sends every paid call: looks into the journal, waits for a slot, checks the budget, retries, stores the reply."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from skillopt.config import HardwareConfig
from skillopt.errors import DiskError, Stopped, disk_trouble
from skillopt.keys import scrub, secrets
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    FatalError,
    Form,
    Message,
    ModelError,
    Schema,
    ToolDefinition,
    TransientError,
    UnansweredError,
    Usage,
    as_chat_model,
    known_reason,
)
from skillopt.models.budget import Budget
from skillopt.models.limiter import Endpoint, Limiter, Sent, Switch, Throttle
from skillopt.models.warming import Warming
from skillopt.provider_table import provider_of
from skillopt.record.journal import SENT, Journal, JournalRow

__all__ = ["Budget", "Caller", "Endpoint", "Limiter", "Switch", "gather_all", "request_key", "stop_on_disk_error"]

T = TypeVar("T")

_canonical = json.JSONEncoder(sort_keys=True).encode
LONGEST_WAIT = 60.0
"""The longest wait in seconds between two tries, unless the endpoint's Retry-After asks for more."""
LONGEST_TURNED_AWAY = 20.0
"""The longest wait in seconds after a 429. It is shorter than LONGEST_WAIT, because after a 429 the limiter sends fewer
calls at once."""

STARTED_AT_ONCE = 256
"""The number of calls that start before the event loop runs anything else."""


@dataclass(kw_only=True)
class Caller:
    """One role's model (target or optimizer) with its journal, limiter, budget and retries."""

    model: ChatModel
    role: str
    journal: Journal
    limiter: Limiter
    budget: Budget
    switch: Switch
    hardware: HardwareConfig
    deterministic: bool
    workers: int = 0
    """The maximum number of rollouts at the same time; 0 means `hardware.workers`."""
    timeout: float = 0.0
    """Seconds after which a call without a reply is cancelled and retried; 0 means `hardware.call_timeout`."""
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    form: Form = "schema"
    """The strictest form of structured reply that the endpoint has not refused yet."""
    from_journal: int = 0
    """The number of replies that came from the journal."""
    retries: int = 0
    throttle: Throttle = field(default_factory=Throttle)
    opaque_rollouts: int = 0
    """The number of rollouts by agents whose calls SkillOpt cannot see (models/bound.py)."""
    _reached: bool = False
    _replies: int = 0
    _completions: int = 0
    _in_flight: dict[tuple[str, int], asyncio.Future[ChatReply]] = field(default_factory=dict)
    _rollout_locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def __post_init__(self) -> None:
        self.model = as_chat_model(self.model)
        self.timeout = self.timeout or self.hardware.call_timeout or 120.0
        self.rollout_slots = asyncio.Semaphore(self.workers or self.hardware.workers)
        self._secrets = secrets()
        self._warming = Warming(provider_of(self.model.name))

    def clean(self, value: T) -> T:
        """The JSON value with the environment's secrets masked. A value without secrets is returned unchanged."""
        return scrub(value, self._secrets)

    def rollout_lock(self, key: str) -> asyncio.Lock:
        """The lock of a rollout, so the same rollout is not done twice at the same time."""
        lock = self._rollout_locks.get(key) or asyncio.Lock()
        return self._rollout_locks.setdefault(key, lock)

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        label: str,
        schema: Schema | None = None,
        attempt: int = 1,
        turn: int = 1,
        low_priority: bool = False,
        tools: Sequence[ToolDefinition] = (),
        waits: list[float] | None = None,
    ) -> ChatReply:
        """Return the reply: from the journal if it is there, else from the model.

        `label` names the sample (split, item, step, repeat). A noisy model is asked again for each label. A
        deterministic model is asked once per request; the label is ignored. Set `low_priority` if nothing waits for the
        reply yet. The seconds of each wait (for a slot, or before another try) are appended to `waits`.
        """
        purpose, label = label, "" if self.deterministic else label
        request = ChatRequest(
            messages=tuple(messages),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            schema=schema,
            seed=int(hashlib.sha256(label.encode()).hexdigest()[:7], 16) if label else None,
            effort=self.effort,
            tools=tuple(tools),
            shared_prefix=self.role == "target",
        )
        key = request_key(self.model, request, label)
        earlier = await self._earlier_reply(key, attempt)
        if earlier is not None:
            return earlier
        waits = [] if waits is None else waits
        # Other callers with the same request wait for this reply; if this call is cancelled, one of them asks instead.
        future: asyncio.Future[ChatReply] = asyncio.get_running_loop().create_future()
        self._in_flight[key, attempt] = future
        try:
            async with self._warming.turn(request, low_priority, waits):
                reply = await self._paid(request, low_priority, waits)
                # People read the optimizer's requests in the journal; the target's requests are in its trajectories.
                keeps = self.role == "optimizer" and stage != "judge"
                sent = {SENT: {"label": purpose, "messages": self.clean([*messages])}} if keeps else {}
                await self._store(reply, sent, key=key, attempt=attempt, stage=stage, turn=turn)
            future.set_result(reply)
            return reply
        except Exception as error:
            future.set_exception(error)
            future.exception()  # asyncio warns if nobody has read it
            raise
        finally:
            del self._in_flight[key, attempt]
            future.cancel()  # no effect on a future that is done

    async def _earlier_reply(self, key: str, attempt: int) -> ChatReply | None:
        """The reply from the journal, or from an equal request that is in flight; None if the request must be sent."""
        while True:
            stored = self.journal.get(key, attempt)
            if stored is not None:
                self.from_journal += 1
                return _reply_from(stored)
            in_flight = self._in_flight.get((key, attempt))
            if in_flight is None:
                return None
            await asyncio.wait([in_flight])
            if not in_flight.cancelled():
                return in_flight.result()

    async def _store(
        self, reply: ChatReply, sent: dict[str, Any], *, key: str, attempt: int, stage: str, turn: int
    ) -> None:
        usage, rest = reply.usage, {name: value for name, value in vars(reply).items() if name != "usage"}
        row = JournalRow(
            key=key,
            attempt=attempt,
            role=self.role,
            stage=stage,
            model=self.model.name,
            turn=turn,
            reply={"usage": stored_usage(usage)} | rest | sent,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cached_tokens=usage.cached,
            usd=usage.usd,
        )
        with stop_on_disk_error(self.switch):
            await self.journal.store(row)

    async def _paid(self, request: ChatRequest, low_priority: bool, waits: list[float]) -> ChatReply:
        """Send a request, with retries, until the model replies. Raises an error if there is no further try."""
        first, others, failures = 0.0, 0, 0
        reply: ChatReply | None = None
        for attempt in itertools.count():
            estimate = self._estimate(request)
            tokens = estimate.prompt + estimate.completion
            with timed(waits):
                sent = await self.limiter.enter(
                    self.switch, tokens=tokens, again=attempt > 0, low_priority=low_priority
                )
            if not attempt:
                first, others = time.monotonic(), self._replies
            try:
                with self._accounted(estimate, sent) as account:
                    began = time.monotonic()
                    answer = self.model.chat(request)
                    if self.model.human_paced:  # only the end of the run or of its time limit ends this wait
                        reply = account(await self.switch.until(answer, self.budget.time_left()))
                    else:
                        async with asyncio.timeout(None if self.model.ends_calls else self.timeout):
                            reply = account(await answer)
            except TransientError as error:
                trouble, wait = error, backoff(error, attempt)
                failures += not error.throttled
                self._give_up(error, attempt, failures, time.monotonic() + wait - first, self._replies - others)
            except (FatalError, Stopped) as error:
                self.switch.trip(error)
                raise
            finally:
                self.limiter.leave()
            if reply is not None:
                return replace(reply, seconds=round(time.monotonic() - began, 6))
            self.retries += 1
            with self.throttle.holding(trouble, wait), timed(waits):
                await self.switch.sleep(wait)
        raise AssertionError("the last failed try raises")

    @contextlib.contextmanager
    def _accounted(self, estimate: Usage, sent: Sent) -> Iterator[Callable[[ChatReply], ChatReply]]:
        """Count one try in the budget and in the endpoint's limits. Yields a function that counts a reply and returns
        that reply without secrets."""
        endpoint = self.limiter.endpoint
        human_paced = self.model.human_paced
        with self.budget.call(self.model.name, estimate) as paid:

            def account(reply: ChatReply) -> ChatReply:
                if not human_paced:  # a person's reply time says nothing about the right number of requests in flight
                    endpoint.on_success()
                paid(reply.usage)
                self._learn(estimate, reply.usage)
                return replace(
                    reply,
                    text=self.clean(reply.text),
                    tool_calls=self.clean(reply.tool_calls),
                    finish_reason=known_reason(reply.finish_reason),
                )

            try:
                yield account
            except TimeoutError:
                if human_paced:
                    raise self.budget.out_of_time() from None
                endpoint.on_throttled(sent, None)
                raise TransientError(f"no answer within {self.timeout:g} s") from None
            except ModelError as error:
                if error.usage is not None:
                    paid(error.usage)
                if isinstance(error, TransientError) and error.overloaded:
                    endpoint.on_throttled(sent, error.retry_after)
                raise

    def _estimate(self, request: ChatRequest) -> Usage:
        """Estimate a call's usage: one token for four characters of the prompt, and a reply as long as the mean of
        earlier replies."""
        prompt = sum(_characters(message.get("content")) for message in request.messages) // 4
        longest = request.max_tokens or 1024
        usual = self._completions / self._replies if self._replies else 256
        return Usage(prompt=prompt, completion=min(longest, round(usual)))

    def _learn(self, estimate: Usage, usage: Usage) -> None:
        self._reached = True
        self._replies += 1
        self._completions += usage.completion
        self.limiter.used(usage.prompt + usage.completion - estimate.prompt - estimate.completion)

    def check_wait(self, error: TransientError) -> None:
        """Stop the run if the endpoint asks to wait longer than `hardware.max_retry_seconds`."""
        most = self.hardware.max_retry_seconds
        if error.retry_after is not None and error.retry_after > most:
            wait = f"{error.retry_after:g} s, longer than hardware.max_retry_seconds ({most:g})"
            stopped = Stopped(
                f"{self.role}: {error}; the endpoint asks to wait {wait}. To continue the run, repeat the command later"
            )
            self.switch.trip(stopped)
            raise stopped

    def _give_up(self, error: TransientError, attempt: int, failures: int, seconds: float, others: int) -> None:
        """Raise if the call should not be tried again.

        `seconds` is the time from the first try to the next one; `others` is the number of other calls that were
        answered since the first try. A rejection (429) is not the item's fault: only `seconds` then limits the tries,
        and the item is not set aside.
        """
        self.check_wait(error)
        if not error.reached and not self._reached and attempt >= 2:
            fatal = FatalError(f"{self.role}: {error}; is the server running, and is the URL right?")
            self.switch.trip(fatal)
            raise fatal
        again = self.hardware.max_retries > 0 if error.throttled else failures <= self.hardware.max_retries
        if again and seconds <= self.hardware.max_retry_seconds:
            return
        tried = f"{self.role}: {error} (after {attempt + 1} tries)"
        if attempt and others >= 3 and not error.throttled:
            raise UnansweredError(f"{tried}, while {others} other calls were answered")
        raise TransientError(tried, reached=error.reached, overloaded=error.throttled)


def request_key(model: ChatModel, request: ChatRequest, label: str) -> str:
    """The key of a request's replies in the journal."""
    parts = [
        model.endpoint,
        model.name,
        request.messages,
        request.temperature,
        request.max_tokens,
        asdict(request.schema) if request.schema else None,
        label,
        *([request.effort] if request.effort else []),
        *([{"tools": request.tools}] if request.tools else []),
    ]
    return hashlib.sha256(_canonical(parts).encode()).hexdigest()


@contextlib.contextmanager
def stop_on_disk_error(switch: Switch) -> Iterator[None]:
    """Stop the run if a reply cannot be stored: every further reply would be paid for and lost."""
    try:
        yield
    except DiskError as error:
        stopped = Stopped(disk_trouble(error))
        switch.trip(stopped)
        raise stopped from error


@contextlib.contextmanager
def timed(seconds: list[float]) -> Iterator[None]:
    """Append the duration of the block to the list `seconds`."""
    started = time.monotonic()
    yield
    seconds.append(time.monotonic() - started)


def backoff(error: TransientError, attempt: int) -> float:
    """Seconds before the next try, with some jitter, so retries do not come all at once."""
    spread = random.random()  # noqa: S311 - only timing
    if error.retry_after is not None:
        least = min(5.0, 0.01 * 2.0 ** min(attempt, 10)) if error.throttled else 0.0  # some ask for 0 seconds
        return max(least, error.retry_after) * (1 + spread / 50)
    longest = LONGEST_TURNED_AWAY if error.throttled else LONGEST_WAIT
    return min(longest, 0.5 * 2.0 ** min(attempt, 10)) * (0.75 + spread / 2)


def _characters(content: Any) -> int:
    """The number of characters of a message's text. An image counts as 4,000 characters, or about a thousand tokens."""
    if isinstance(content, list):
        return sum(len(part["text"]) if part.get("type") == "text" else 4000 for part in content)
    return len(str(content or ""))


def stored_usage(usage: Usage) -> dict[str, float | None]:
    """The usage as the journal stores it: without `written` if that is 0."""
    return {name: value for name, value in vars(usage).items() if value or name != "written"}


def _reply_from(stored: dict[str, Any]) -> ChatReply:
    typed = {"usage": Usage(**stored["usage"]), "tool_calls": tuple(stored.get("tool_calls", ()))}
    return ChatReply(**{name: value for name, value in {**stored, **typed}.items() if name != SENT})


async def gather_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Run all awaitables to their end. Then return the results, or raise the first error. An error does not cancel the
    others, because their calls are paid for and the replies must be kept.

    The awaitables start in groups. Between two groups, calls are sent and a stop is noticed.
    """
    tasks: list[asyncio.Future[T]] = []
    try:
        for number, each in enumerate(work, 1):
            tasks.append(asyncio.ensure_future(each))
            if number % STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
