"""Sends requests to an endpoint: one aiohttp session per model, through the environment's proxies."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

KEPT = 75.0
"""Seconds for which an unused connection stays open."""
LONGEST = 8 * 2**20
"""The maximum number of bytes of an answer that are read, before and after decompression."""


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class UnreachableError(ConnectionError):
    """No server answers at the address."""


class UnreadableError(ConnectionError):
    """The answer is too long, or compressed in a way that was not requested."""


class Transport:
    """POSTs to one URL. Raises ConnectionError if there is no complete response.

    Connections belong to an event loop: in another loop, or after `close`, new connections are opened."""

    def __init__(self, url: str) -> None:
        self._url, self._proxy = url, env_proxy(url)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _connected(self) -> aiohttp.ClientSession:
        loop, earlier = asyncio.get_running_loop(), self._session
        if self._session is None or self._loop is not loop:
            # The limiter limits the calls in flight, call.py's timeout their duration.
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "gzip"},
                auto_decompress=False,  # aiohttp does not limit the decompressed size
            )
            if earlier is not None:
                await earlier.close()
        return self._session

    async def post(self, headers: Mapping[str, str], body: bytes) -> Response:
        session = await self._connected()
        try:
            async with session.post(
                self._url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            ) as response:
                body = await read_body(response.status, response.headers, response.content.iter_any())
                return Response(response.status, response.headers, body)
        except (aiohttp.ClientConnectorError, UnicodeError) as error:  # the name cannot be encoded for DNS
            raise UnreachableError(getattr(error, "strerror", "") or str(error)) from None
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def read_body(status: int, headers: Mapping[str, str], parts: AsyncIterable[bytes]) -> bytes:
    """The first LONGEST bytes of the body. Raises UnreadableError if a reply (status 200) is longer."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > LONGEST:
            break
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        body = _unpacked(body)
    if len(body) > LONGEST and status == 200:
        raise UnreadableError(f"the answer is longer than {LONGEST >> 20} MB; the rest was not read")
    return bytes(body[:LONGEST])


def _unpacked(body: bytearray) -> bytearray:
    try:
        return bytearray(zlib.decompressobj(wbits=47).decompress(body, LONGEST + 1))  # window bits 47: gzip or zlib
    except zlib.error:
        raise UnreadableError("the answer is compressed, but not with gzip") from None


def env_proxy(url: str) -> str | None:
    """The proxy that the environment names for this URL. aiohttp itself would look up the proxy and read the user's
    .netrc for every call, which takes longer than the rest of the call."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
