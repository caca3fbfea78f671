"""How a request's bytes reach an endpoint: one aiohttp session a model, with the environment's proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

KEPT = 75.0
"""Seconds that a connection is kept for another request."""


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class UnreachableError(ConnectionError):
    """Nobody answers there."""


class Transport:
    """POSTs to one URL. Raises ConnectionError for whatever gives no whole response."""

    def __init__(self, url: str) -> None:
        self._url, self._proxy = url, env_proxy(url)
        # The limiter bounds what is in flight; call.py's timeout bounds how long.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def post(self, headers: Mapping[str, str], body: bytes) -> Response:
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            ) as response:
                return Response(response.status, response.headers, await response.read())
        except (aiohttp.ClientConnectorError, UnicodeError) as error:  # a name that can be none is no text for DNS
            raise UnreachableError(getattr(error, "strerror", "") or str(error)) from None
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        await self._session.close()


def env_proxy(url: str) -> str | None:
    """The proxy that the environment names for this URL. Looked up once: aiohttp does so for every call, and
    reads the user's .netrc each time, which takes longer than the call's own work."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")
