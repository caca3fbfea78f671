"""Limits the number of calls in flight: to the user's limit, and to fewer if the endpoint cannot handle so many.

An `Endpoint` keeps the state of one server for all roles that call it; a `Limiter` counts the calls of one role.
Nothing here changes a result: it only decides when a call is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from skillopt.errors import SkillOptError
from skillopt.models.base import TransientError

T = TypeVar("T")

START = 32
"""The first limit of calls in flight. Until this limit falls for the first time, each success raises it by one, up to
the user's limit."""
WINDOW = 40
"""The number of recent calls that decide whether an endpoint's limit falls."""


class Switch:
    """Prevents new calls once something has ended the run. Calls in flight finish, and their replies are kept."""

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
        """Sleep. If the run ends in the meantime, raise the reason."""
        try:
            await asyncio.wait_for(self._tripped.wait(), seconds)
        except TimeoutError:
            return
        self.check()

    async def until(self, work: Awaitable[T], seconds: float | None) -> T:
        """Return the result of `work`. Raises TimeoutError after `seconds`. If the run ends before that, raises the
        reason."""
        task, end = asyncio.ensure_future(work), asyncio.ensure_future(self._tripped.wait())
        try:
            await asyncio.wait({task, end}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.check()
            raise TimeoutError
        finally:
            task.cancel()
            end.cancel()


class Throttle:
    """Counts the calls that wait because the endpoint throttled them; the progress display shows them."""

    def __init__(self) -> None:
        self.waiting = 0
        self.why = ""
        self._until = 0.0

    @contextlib.contextmanager
    def holding(self, error: TransientError, seconds: float) -> Iterator[None]:
        """Count a call while it waits for its next try, if the endpoint rejected it (429 or similar)."""
        if not error.throttled:
            yield
            return
        self.waiting += 1
        self.why, self._until = str(error), time.monotonic() + seconds
        try:
            yield
        finally:
            self.waiting -= 1

    def seconds(self) -> float:
        """Seconds until the next try of the call that was rejected last."""
        return max(0.0, self._until - time.monotonic())


class Bucket:
    """A token bucket. It refills at a steady rate; while its level is below zero, callers must wait."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60
        self._most = max(1.0, per_minute / 6)  # at most ten seconds' worth: providers limit short periods, too
        self._level = self._most
        self._seen = time.monotonic()

    def take(self, amount: float) -> None:
        self._refill()
        self._level -= amount

    def wait(self) -> float:
        """Seconds until the level is no longer below zero."""
        self._refill()
        return max(0.0, -self._level / self.rate)

    def _refill(self) -> None:
        now = time.monotonic()
        self._level = min(self._most, self._level + (now - self._seen) * self.rate)
        self._seen = now


class Slots:
    """Slots for calls in flight; `limit` may change. A free slot goes first to a waiting call that is sent `again`, and
    last to a `low_priority` call. Among calls of the same kind, it goes to the one that came first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self._waiting: tuple[deque[asyncio.Future[int]], ...] = (deque(), deque(), deque())

    async def enter(self, *, again: bool = False, low_priority: bool = False) -> int:
        """Wait for a slot; return the number of slots in use, including this one."""
        if self.in_flight < self.limit:
            self.in_flight += 1
            return self.in_flight
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[2 if low_priority else 0 if again else 1].append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        self.in_flight -= 1
        self.hand_out()

    def hand_out(self) -> None:
        """Give free slots to waiting calls."""
        for queue in self._waiting:
            while queue and self.in_flight < self.limit:
                turn = queue.popleft()
                if not turn.done():
                    self.in_flight += 1
                    turn.set_result(self.in_flight)


@dataclass(slots=True)
class Sent:
    """A call that was sent to an endpoint."""

    level: int
    """The number of calls in flight when this one was sent, including this one."""
    rejected: bool = False


class Endpoint(Slots):
    """The state of one server: how many calls in flight it can handle, and whether it asked for a pause.

    A call's level is the number of calls that were in flight when it was sent. If most of the recent calls at some
    level and above were rejected, the limit falls to one less than that level. Single rejections do not lower the
    limit, because a server may reject every fifth call at any level. A limit of n grows by one after n successes. If
    the limit has grown and then falls again, its next growth needs twice as many successes.

    A call that has no answer yet counts as accepted. Rejections come at once, but replies take time. If calls without
    an answer did not count, most of the first responses would be rejections.
    """

    def __init__(self, ceiling: int) -> None:
        super().__init__(min(ceiling, START))
        self.ceiling = ceiling
        self.turned_away = 0
        """The number of calls that were rejected (429 and similar) in this session."""
        self._recent: deque[Sent] = deque(maxlen=WINDOW)
        self._not_before = 0.0
        self._doubling = True  # until the limit first falls
        self._probing = False  # whether the limit has grown since it fell
        self._patience = 1
        self._healthy = 0

    def widen(self, ceiling: int) -> None:
        """Raise the ceiling for another role that shares this endpoint."""
        self.ceiling += ceiling
        self.limit = min(self.ceiling, START)

    def pause(self, seconds: float) -> None:
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def paused(self) -> float:
        """Seconds left of a pause; 0 or less if there is none."""
        return self._not_before - time.monotonic()

    def sent(self, level: int) -> Sent:
        """Record that a call is sent now. `level` is the number of slots in use, including the call's slot."""
        self._recent.append(Sent(level))
        return self._recent[-1]

    def on_success(self) -> None:
        self._healthy += 1
        if self.limit < self.ceiling and self._healthy >= (1 if self._doubling else self.limit * self._patience):
            self._patience = 1 if self._probing else self._patience
            self._probing = not self._doubling
            self._healthy = 0
            self.limit += 1
            self.hand_out()

    def on_throttled(self, call: Sent, retry_after: float | None) -> None:
        """Record that a call was rejected (429, 503, 529) or timed out."""
        self.turned_away += 1
        call.rejected = True
        if retry_after and _mostly_rejected([*self._recent][-WINDOW // 2 :]):
            self.pause(retry_after)
        for lowest in sorted({sent.level for sent in self._recent if sent.rejected}):
            beyond = [sent for sent in self._recent if sent.level >= lowest]
            if 1 < lowest <= self.limit and _mostly_rejected(beyond):
                self._fall(lowest - 1)
                return

    def _fall(self, limit: int) -> None:
        if self._probing:
            self._patience = min(32, self._patience * 2)
        self.limit = limit
        self._doubling = self._probing = False
        self._healthy = 0
        self._recent = deque((sent for sent in self._recent if sent.level <= limit), maxlen=WINDOW)


def _mostly_rejected(calls: Sequence[Sent]) -> bool:
    rejected = sum(call.rejected for call in calls)
    return rejected >= 2 and rejected > len(calls) / 2


class Limiter:
    """Limits one role's calls: at most `limit` in flight, fewer if the endpoint handles fewer, none during a pause."""

    def __init__(
        self, limit: int, endpoint: Endpoint | None = None, *, requests: int | None = None, tokens: int | None = None
    ) -> None:
        self.limit = limit
        self.in_flight = 0
        self.endpoint = endpoint or Endpoint(limit)
        self._slots = Slots(limit)
        self._buckets = {name: Bucket(n) for name, n in (("requests", requests), ("tokens", tokens)) if n is not None}

    def used(self, tokens: float) -> None:
        """Correct the estimate of a call: `tokens` is its real usage minus the estimate."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(tokens)

    async def enter(
        self, switch: Switch, *, tokens: float = 0, again: bool = False, low_priority: bool = False
    ) -> Sent:
        """Wait until a call of about `tokens` tokens may be sent. A call that is sent `again` goes before all other
        calls; a `low_priority` call goes last."""
        await self._slots.enter(again=again, low_priority=low_priority)
        level = 0
        try:
            level = await self.endpoint.enter(again=again)
            while (wait := self._wait()) > 0:
                await switch.sleep(wait)
            switch.check()
        except BaseException:
            if level:
                self.endpoint.leave()
            self._slots.leave()
            raise
        for name, bucket in self._buckets.items():
            bucket.take(1 if name == "requests" else tokens)
        self.in_flight += 1
        return self.endpoint.sent(level)

    def leave(self) -> None:
        """Free the slot of a call that has ended, with or without success."""
        self.in_flight -= 1
        self.endpoint.leave()
        self._slots.leave()

    def _wait(self) -> float:
        waits = [bucket.wait() for bucket in self._buckets.values()]
        return max(self.endpoint.paused(), *waits, 0.0)
