"""How many calls an endpoint gets at once: as many as it can handle, and never more than the user allows.

An `Endpoint` is one server's health, shared by the roles that call it; a `Limiter` is one role's share of it. Nothing
here changes a result: it only decides when a call is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from skillopt.errors import SkillOptError
from skillopt.models.base import RateLimits, TransientError

T = TypeVar("T")

START = 32
"""Calls at once before anything is known of an endpoint; where more are allowed they double while all goes well."""
WINDOW = 40
"""Recent outcomes, which show the state of an endpoint."""
RISE = 2.0
"""Latency has risen when the median of a block of calls is this many times that of an earlier block."""
BLOCK = 16
"""Calls of one kind whose median latency is compared."""


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

    async def until(self, work: Awaitable[T], seconds: float | None) -> T:
        """What `work` gives, but not past the end of the run; raises TimeoutError after `seconds`."""
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
    """Which calls wait because the endpoint turned them away, for whoever watches."""

    def __init__(self) -> None:
        self.waiting = 0
        self.why = ""
        self._until = 0.0

    @contextlib.contextmanager
    def holding(self, error: TransientError, seconds: float) -> Iterator[None]:
        """Around the wait before a call's next try; only 429s and their like count."""
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
        """Until the next try of the call that was turned away last."""
        return max(0.0, self._until - time.monotonic())


class Bucket:
    """Tokens that come back at a steady rate. Taking more than there is makes the taker wait, not fail."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60
        self._most = max(1.0, per_minute / 6)  # ten seconds' worth at once: providers count short windows, too
        self._level = self._most
        self._seen = time.monotonic()

    def take(self, amount: float) -> None:
        self._refill()
        self._level -= amount

    def wait(self) -> float:
        """Seconds until something may be taken again."""
        self._refill()
        return max(0.0, -self._level / self.rate)

    def told(self, remaining: float, rate: float) -> None:
        """The endpoint's own count, where it says so."""
        self._refill()
        self.rate, self._level = rate, min(self._level, remaining)

    def _refill(self) -> None:
        now = time.monotonic()
        self._level = min(self._most, self._level + (now - self._seen) * self.rate)
        self._seen = now


@dataclass
class _Latency:
    """The latency of one kind of call, block by block."""

    block: list[float] = field(default_factory=list)
    usual: float | None = None

    def rose(self, seconds: float) -> bool:
        """Did the block that this call completes take much longer than earlier ones? What it took is then usual."""
        self.block.append(seconds)
        if len(self.block) < BLOCK:
            return False
        now, self.block = median(self.block), []
        rose = self.usual is not None and now > RISE * self.usual
        self.usual = now if rose or self.usual is None else min(self.usual, now)
        return rose


class Endpoint:
    """One server's health: how many calls at once it can handle, and whether it has asked for a pause.

    A call remembers its level: how many were in flight when it was sent, itself included. A call that is turned away
    where most from its level on go through says nothing about width (a server may turn away every fifth at any). Where
    most are turned away, the limit falls below that level, and rises again if a call beyond it proves to go through. It
    grows by one after as many successes as the limit, and after twice as many each time that growing was a mistake.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = min(ceiling, START)
        self.in_flight = 0
        self.turned_away = 0
        """429s and their like, over the session."""
        self._outcomes: deque[tuple[int, bool]] = deque(maxlen=WINDOW)
        self._recent: deque[bool] = deque(maxlen=WINDOW // 2)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._not_before = 0.0
        self._doubling = True  # until the first call is rejected
        self._doubtful = False  # it last fell because of rejected calls; calls in flight may show that as wrong
        self._probing = False  # the limit has grown by one since it fell
        self._patience = 1
        self._healthy = 0
        self._latency: dict[str, _Latency] = {}

    def widen(self, ceiling: int) -> None:
        """Another role shares this endpoint."""
        self.ceiling += ceiling
        self.limit = min(self.ceiling, START)

    def pause(self, seconds: float) -> None:
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def paused(self) -> float:
        """Seconds that are left of a pause; not above 0 where there is none."""
        return self._not_before - time.monotonic()

    async def enter(self) -> int:
        """Wait for a place; returns the level."""
        while self.in_flight >= self.limit:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                self._wake()
                raise
        self.in_flight += 1
        return self.in_flight

    def leave(self) -> None:
        self.in_flight -= 1
        self._wake()

    def went_through(self, level: int, kind: str, seconds: float) -> None:
        """A call was answered. Calls of one kind take about the same time."""
        self._outcomes.append((level, True))
        self._recent.append(True)
        if self._latency.setdefault(kind, _Latency()).rose(seconds):
            self._fall(int(self.limit * 0.8), doubtful=False)
            return
        if level > self.limit and self._doubtful:
            self.limit = level
        self._healthy += 1
        needed = 1 if self._doubling else self.limit * self._patience
        if self.limit < self.ceiling and self._healthy >= needed:
            self._grow()
        self._wake()

    def turned_down(self, level: int, retry_after: float | None) -> None:
        """A call was answered 429, or similar: 503, 529, nothing at all."""
        self.turned_away += 1
        self._outcomes.append((level, False))
        self._recent.append(False)
        if retry_after and self._recent.count(False) > len(self._recent) / 2:
            self.pause(retry_after)
        for lowest in sorted({other for other, ok in self._outcomes if not ok}):
            beyond = [ok for other, ok in self._outcomes if other >= lowest]
            refused = beyond.count(False)
            if 1 < lowest <= self.limit and refused >= 2 and refused > len(beyond) / 2:
                if self._probing:
                    self._patience = min(32, self._patience * 2)
                self._fall(lowest - 1, doubtful=True)
                self._outcomes = deque((pair for pair in self._outcomes if pair[0] < lowest), maxlen=WINDOW)
                return

    def _grow(self) -> None:
        if self._probing:
            self._patience = 1
        self._probing = not self._doubling
        self._healthy = 0
        self.limit += 1

    def _fall(self, limit: int, *, doubtful: bool) -> None:
        self.limit = max(1, min(self.limit, limit))
        self._doubtful = doubtful
        self._doubling = self._probing = False
        self._healthy = 0

    def _wake(self) -> None:
        free = self.limit - self.in_flight
        while self._waiting and free > 0:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1


class Places:
    """A number of places. Waiting calls get one in order of arrival; those that can wait come after all others."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque())

    async def take(self, *, later: bool) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[later].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Gives the place to the next in the queue."""
        for queue in self._waiting:
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1


@dataclass(slots=True)
class Slot:
    """A place among the calls in flight, through which the caller reports the outcome of its call."""

    endpoint: Endpoint
    level: int
    sent: float

    def went_through(self, kind: str) -> None:
        self.endpoint.went_through(self.level, kind, time.monotonic() - self.sent)

    def turned_down(self, retry_after: float | None) -> None:
        self.endpoint.turned_down(self.level, retry_after)


class Limiter:
    """One role's calls: at most `limit` in flight, fewer if its endpoint handles fewer, none while that asks to wait.

    `requests` and `tokens` are the user's limits a minute; without them, the endpoint's headers are used.
    """

    def __init__(
        self, limit: int, endpoint: Endpoint | None = None, *, requests: int | None = None, tokens: int | None = None
    ) -> None:
        self.limit = limit
        self.in_flight = 0
        self.endpoint = endpoint or Endpoint(limit)
        self._places = Places(limit)
        self._own = {"requests": requests is not None, "tokens": tokens is not None}
        self._buckets = {name: Bucket(n) for name, n in (("requests", requests), ("tokens", tokens)) if n is not None}

    def pause(self, seconds: float) -> None:
        self.endpoint.pause(seconds)

    def told(self, limits: RateLimits) -> None:
        """What the endpoint's headers said. The user's limits override them."""
        for name, left in (("requests", limits.requests), ("tokens", limits.tokens)):
            if left is None or self._own[name] or left.reset <= 0 or left.remaining >= left.limit:
                continue
            rate = (left.limit - left.remaining) / left.reset
            bucket = self._buckets.setdefault(name, Bucket(left.limit))
            bucket.told(left.remaining, rate)

    def used(self, tokens: float) -> None:
        """Correct a call's estimated tokens by what it really took."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(tokens)

    async def enter(self, switch: Switch, *, tokens: float = 0, later: bool = False) -> Slot:
        """A place for one call of about `tokens` tokens; with `later`, it comes after all calls that cannot wait."""
        await self._places.take(later=later)
        level = 0
        try:
            level = await self.endpoint.enter()
            while (wait := self._wait()) > 0:
                await switch.sleep(wait)
            switch.check()
        except BaseException:
            if level:
                self.endpoint.leave()
            self._places.give_back()
            raise
        self._take(tokens)
        self.in_flight += 1
        return Slot(self.endpoint, level, time.monotonic())

    def leave(self) -> None:
        """The call that had a place has ended, however it did."""
        self.in_flight -= 1
        self.endpoint.leave()
        self._places.give_back()

    def _wait(self) -> float:
        waits = [bucket.wait() for bucket in self._buckets.values()]
        return max(self.endpoint.paused(), *waits, 0.0)

    def _take(self, tokens: float) -> None:
        for name, bucket in self._buckets.items():
            bucket.take(1 if name == "requests" else tokens)
