"""Warming an endpoint's prompt cache: the first request with a prefix goes alone, the others follow and read it.

A prefix enters the cache of some providers only with the reply to a request (`Provider.warms_cache`); requests that are
sent at the same time would each pay for writing it. Only the order of time changes, and no result.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator

from skillopt.models.base import ChatRequest
from skillopt.provider_table import Provider

KEPT = 270.0
"""Seconds after which an unused prefix counts as out of the cache; the providers keep it for five minutes."""


class Warming:
    """Decides which requests may be sent now, by the prefix that they begin with."""

    def __init__(self, provider: Provider) -> None:
        self._least = 4 * provider.cached_from if provider.warms_cache else 0
        """Characters of a prefix from which on requests wait; 0 if none has to wait."""
        self._used: dict[str, float] = {}
        """The time of the last reply, by prefix."""
        self._first: dict[tuple[str, bool], asyncio.Future[None]] = {}
        """The request that was sent alone, by prefix. Only requests with the same prefix wait for it."""

    @contextlib.asynccontextmanager
    async def turn(self, request: ChatRequest, low_priority: bool, waits: list[float]) -> AsyncIterator[None]:
        """Wait for the reply to the first request with this prefix, or be that first request. The seconds of waiting
        are added to `waits`."""
        text = request.prefix() if self._least else ""
        if not text or len(text) < self._least:
            yield
            return
        prefix = hashlib.sha256(text.encode()).hexdigest()
        place = (prefix, low_priority)
        started = time.monotonic()
        while self._is_cold(prefix) and place in self._first:
            await asyncio.wait([self._first[place]])
        waits.append(time.monotonic() - started)
        if not self._is_cold(prefix):
            yield
            self._used[prefix] = time.monotonic()
            return
        first = self._first[place] = asyncio.get_running_loop().create_future()
        try:
            yield
            self._used[prefix] = time.monotonic()
        finally:  # after an error, the next one goes alone
            del self._first[place]
            first.set_result(None)

    def _is_cold(self, prefix: str) -> bool:
        return time.monotonic() - self._used.get(prefix, -KEPT) >= KEPT
