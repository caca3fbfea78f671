"""How a request's bytes reach an endpoint: over our own connections where it is plain HTTP, else through aiohttp.

A general client takes more CPU for a call than all else that we do with it. To a server that is reached directly and
without encryption (vLLM and its like, on this machine or beside it) the little of HTTP/1.1 that one POST and its answer
need is spoken here; TLS and proxies are aiohttp's.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

KEPT = 75.0
"""Seconds that a connection is kept for another request."""
LONGEST_HEAD = 1 << 16
CHUNKED = -1
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?\Z")
_LENGTH = re.compile(r"\d{1,15}\Z", re.ASCII)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?\Z")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class UnreachableError(ConnectionError):
    """Nobody answers there."""


class Transport(Protocol):
    """POSTs to one URL. Raises ConnectionError for whatever gives no whole answer."""

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer: ...

    async def close(self) -> None: ...


def open_transport(url: URL) -> Transport:
    proxy = env_proxy(url)
    return General(url, proxy) if proxy or url.scheme != "http" or url.user else Direct(url)


def env_proxy(url: URL) -> str | None:
    """The proxy that the environment names for this URL. Looked up once: aiohttp does so for every call, and
    reads the user's .netrc each time, which takes longer than the call's own work."""
    if proxy_bypass(url.host or ""):
        return None
    known = getproxies()
    return known.get(url.scheme) or known.get("all")


class General:
    """Whatever aiohttp can reach."""

    def __init__(self, url: URL, proxy: str | None) -> None:
        self._url, self._proxy = url, proxy
        # The limiter bounds what is in flight; call.py's timeout bounds how long.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            ) as response:
                return Answer(response.status, response.headers, await response.read())
        except aiohttp.ClientConnectorError as error:
            raise UnreachableError(error.strerror or str(error)) from None
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        await self._session.close()


class Direct:
    """A plain HTTP server. A connection carries one request at a time; those that are free are kept, the last first."""

    def __init__(self, url: URL) -> None:
        self._host, self._port = url.host or "", url.port or 80
        self._head = f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\nAccept: */*\r\n"
        self._free: list[Connection] = []
        self._busy: set[Connection] = set()

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        connection = self._take() or await self._connect()
        self._busy.add(connection)
        try:
            answer = await connection.ask(f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except BaseException:  # cancelled, too: what would come after this is no answer to another request
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        if connection.open:
            self._free.append(connection)
        return answer

    def _take(self) -> Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.open and time.monotonic() - connection.used < KEPT:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, self._host, self._port, happy_eyeballs_delay=0.25
            )
        except (OSError, UnicodeError) as error:  # a name that can be none is no text for DNS
            raise UnreachableError(getattr(error, "strerror", "") or str(error)) from None
        return connection

    async def close(self) -> None:
        for connection in [*self._free, *self._busy]:
            connection.abort()
        self._free.clear()
        await asyncio.sleep(0)  # the sockets are closed in the loop's next turn


class Connection(asyncio.Protocol):
    """One connection, which reads one answer after the other."""

    def __init__(self) -> None:
        self.open = False
        self.used = 0.0
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._reader = Reader()

    async def ask(self, request: bytes) -> Answer:
        if self._transport is None or not self.open:
            raise ConnectionResetError("the connection was closed")
        self._reader = Reader()
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def abort(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.abort()  # nothing was asked, or it is answered: whatever this is, nothing may come after it
        else:
            self._tell(self._waiting, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._waiting is None or self._waiting.done():
            return
        if error is not None:
            self._waiting.set_exception(ConnectionResetError(str(error)))
        else:
            self._tell(self._waiting, b"", ended=True)

    def _tell(self, waiting: asyncio.Future[Answer], data: bytes, *, ended: bool = False) -> None:
        try:
            answer = self._reader.feed(data, ended=ended)
        except ConnectionError as error:
            waiting.set_exception(error)
            return
        if answer is not None:
            self.used = time.monotonic()
            waiting.set_result(answer)
            if not self._reader.reusable:
                self.abort()


class Reader:
    """Makes one answer of the bytes that come, in whatever pieces."""

    def __init__(self) -> None:
        self.reusable = False
        """Whether the connection can be used again, once the answer is there."""
        self._buffer = bytearray()
        self._ended = False
        self._reading = self._read()

    def feed(self, data: bytes, *, ended: bool = False) -> Answer | None:
        """The answer, once it is whole. Raises ConnectionError where it never will be."""
        self._buffer += data
        self._ended = ended
        try:
            next(self._reading)
        except StopIteration as done:
            self.reusable = self.reusable and not self._buffer
            answer: Answer = done.value
            return answer
        if ended:
            raise ConnectionResetError("the connection ended before the answer did")
        return None

    def _read(self) -> Generator[None, None, Answer]:
        status = 100
        while status < 200:  # 100 and its like only announce the answer
            version, status, headers = _head((yield from self._until(b"\r\n\r\n")))
        length = _length(status, headers)
        said = ",".join(headers.getall("Connection", ())).lower()
        self.reusable = length is not None and "close" not in said and (version == 1 or "keep-alive" in said)
        if length is None:
            while not self._ended:
                yield
            return Answer(status, headers, bytes(self._take(len(self._buffer))))
        if length != CHUNKED:
            return Answer(status, headers, bytes((yield from self._exactly(length))))
        body = bytearray()
        while size := _chunk_size((yield from self._until(b"\r\n"))):
            body += yield from self._exactly(size)
            if (yield from self._exactly(2)) != b"\r\n":
                raise ConnectionError("an answer with a broken chunk")
        while (yield from self._until(b"\r\n")):  # what may stand behind the last chunk says nothing to us
            pass
        return Answer(status, headers, bytes(body))

    def _until(self, mark: bytes) -> Generator[None, None, bytearray]:
        """What stands before the mark, which is taken, too."""
        seen = 0
        while (end := self._buffer.find(mark, seen)) < 0:
            if len(self._buffer) > LONGEST_HEAD:
                raise ConnectionError("an answer that is no HTTP: its head does not end")
            seen = max(0, len(self._buffer) - len(mark) + 1)
            yield
        found = self._take(end)
        self._take(len(mark))
        return found

    def _exactly(self, size: int) -> Generator[None, None, bytearray]:
        while len(self._buffer) < size:
            yield
        return self._take(size)

    def _take(self, size: int) -> bytearray:
        taken = self._buffer[:size]
        del self._buffer[:size]
        return taken


def _head(text: bytearray) -> tuple[int, int, CIMultiDict[str]]:
    """The minor version, the status and the headers of an answer."""
    first, *lines = text.decode("latin-1").split("\r\n")
    found = _STATUS.match(first)
    pairs = [line.partition(":") for line in lines]
    if not found or not all(colon and name and name == name.strip() for name, colon, _ in pairs):
        raise ConnectionError("an answer that is no HTTP/1.1")
    return int(found[1]), int(found[2]), CIMultiDict([(name, value.strip()) for name, _, value in pairs])


def _length(status: int, headers: CIMultiDict[str]) -> int | None:
    """Bytes of the body; None where it lasts until the connection ends."""
    coding = ",".join(headers.getall("Transfer-Encoding", ())).strip().lower()
    lengths = set(headers.getall("Content-Length", ()))
    if coding not in {"", "chunked"} or len(lengths) > 1 or not all(map(_LENGTH.match, lengths)):
        raise ConnectionError("an answer whose end cannot be told")
    if status in {204, 304}:
        return 0
    if coding:
        return CHUNKED
    return int(lengths.pop()) if lengths else None


def _chunk_size(line: bytearray) -> int:
    found = _CHUNK.match(line)
    if not found:
        raise ConnectionError("an answer with a broken chunk")
    return int(found[1], 16)
