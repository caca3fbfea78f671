"""Warms an endpoint's prompt cache. The first request with a prefix (tools and system prompt) is sent alone; other
requests with the same prefix wait for its reply.

Some providers store a prefix only when they reply (`Provider.warms_cache`). If several requests are sent before the
first reply, each of them pays for storing the prefix. The results do not depend on the waiting.
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
"""A prefix that was not used for this many seconds counts as no longer cached. Providers keep it for five minutes."""


class Warming:
    """Makes requests wait for the first request with the same prefix."""

    def __init__(self, provider: Provider) -> None:
        self._least = 4 * provider.cached_from if provider.warms_cache else 0
        """The minimum number of characters of a prefix that the provider caches; 0 if no request has to wait."""
        self._used: dict[str, float] = {}
        """The time of the last reply for each prefix."""
        self._first: dict[tuple[str, bool], asyncio.Future[None]] = {}
        """For each prefix and priority: the request that was sent alone and has no reply yet."""

    @contextlib.asynccontextmanager
    async def turn(self, request: ChatRequest, low_priority: bool, waits: list[float]) -> AsyncIterator[None]:
        """Wait for the reply to the first request with this prefix, or be that first request. The seconds of waiting
        are appended to `waits`."""
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
        finally:  # after an error, the next request goes alone
            del self._first[place]
            first.set_result(None)

    def _is_cold(self, prefix: str) -> bool:
        return time.monotonic() - self._used.get(prefix, -KEPT) >= KEPT
