"""Requests over real sockets: connections are used again, an answer belongs to its request, or it is an error."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from skillopt.errors import UserError
from skillopt.models.base import ChatRequest, TransientError
from skillopt.models.openai_chat import OpenAIChat
from skillopt.models.transport import Transport, UnreachableError, env_proxy

REQUEST = ChatRequest(messages=({"role": "user", "content": "hello"},))


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*values: object, **named: object) -> None:
        async def whole() -> None:
            await test(*values, **named)

        asyncio.run(whole())

    return run


Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


class Raw:
    """A server that speaks bytes: `behave` is called for each request, with its number from 1."""

    def __init__(self, behave: Behave) -> None:
        self.behave, self.heads, self.connections, self.port = behave, list[str](), 0, 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                await reader.readexactly(length)
                self.heads.append(head)
                await self.behave(reader, writer, len(self.heads))
        writer.close()


@contextlib.asynccontextmanager
async def raw(behave: Behave) -> AsyncIterator[tuple[Raw, Transport]]:
    server = Raw(behave)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    direct = Transport(f"http://127.0.0.1:{server.port}/v1/chat?a=b%20c")
    try:
        yield server, direct
    finally:
        await direct.close()
        listening.close()


async def answer_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    body = str(number).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


@in_a_loop
async def test_one_connection_carries_one_request_after_the_other() -> None:
    async with raw(answer_plainly) as (server, direct):
        answers = [await direct.post({"X-Key": "k"}, b"{}") for _ in range(3)]
        assert [answer.body for answer in answers] == [b"1", b"2", b"3"]
        assert server.connections == 1
        await asyncio.gather(*(direct.post({}, b"x" * 3_000_000) for _ in range(4)))
        assert server.connections == 4
    first = server.heads[0].split("\r\n")
    assert first[0] == "POST /v1/chat?a=b%20c HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in first
    assert "X-Key: k" in first


@in_a_loop
async def test_a_request_that_was_given_up_leaves_nothing_behind_for_the_next() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            await asyncio.sleep(0.2)
        await answer_plainly(reader, writer, number)

    async with raw(late) as (server, direct):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(direct.post({}, b""), 0.05)
        assert (await direct.post({}, b"")).body == b"2"
        await asyncio.sleep(0.3)
        assert (await direct.post({}, b"")).body == b"3"
        assert server.connections == 2


@in_a_loop
async def test_a_server_that_closes_between_requests_is_connected_to_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await answer_plainly(reader, writer, number)
        writer.close()

    async with raw(once) as (server, direct):
        for number in (b"1", b"2"):
            assert (await direct.post({}, b"")).body == number
            await asyncio.sleep(0.05)
        assert server.connections == 2


MEGABYTE = b"[" + b" " * (2**20 - 1)


@pytest.mark.parametrize("status", [b"200 OK", b"500 Error", b"429 Slow Down"])
@pytest.mark.parametrize("framing", [b"Connection: close", b"Transfer-Encoding: chunked", b"Content-Length: 67108864"])
@in_a_loop
async def test_a_body_without_end_is_cut_off(status: bytes, framing: bytes) -> None:
    """64 MB stand for a body without end."""
    sent = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        nonlocal sent
        chunked = framing.endswith(b"chunked")
        writer.write(b"HTTP/1.1 %s\r\n%s\r\nRetry-After: 0\r\n\r\n" % (status, framing))
        for _number in range(64):
            writer.write(b"100000\r\n%s\r\n" % MEGABYTE if chunked else MEGABYTE)
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n" if chunked else b"")
        writer.close()

    async with raw(endless) as (server, _):
        model = OpenAIChat("vllm:x", "x", url=f"http://127.0.0.1:{server.port}/v1", key_name="NONE", key_needed=False)
        (error,) = await asyncio.gather(model.chat(REQUEST), return_exceptions=True)
        await model.close()
        assert sent < 32, "the rest was not read"
    assert isinstance(error, TransientError)
    assert ("longer than 8 MB" in str(error)) == (status == b"200 OK")
    assert len(str(error)) < 700


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request"])
@in_a_loop
async def test_a_small_body_that_unpacks_to_a_large_one_is_cut_off(status: bytes) -> None:
    bomb = gzip.compress(MEGABYTE * 256, compresslevel=1)
    assert len(bomb) < 2 * 2**20

    async def explode(_: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        head = b"HTTP/1.1 %s\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % (status, len(bomb)) + bomb)

    async with raw(explode) as (_, direct):
        tracemalloc.start()
        (answer,) = await asyncio.gather(direct.post({}, b"{}"), return_exceptions=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 * 2**20
    if status == b"200 OK":
        assert isinstance(answer, ConnectionError)
        assert "longer than 8 MB" in str(answer)


@in_a_loop
async def test_a_packed_answer_is_unpacked() -> None:
    async def packed(_: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        body = gzip.compress(b"hello") if number == 1 else b"no gzip"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with raw(packed) as (_, direct):
        assert (await direct.post({}, b"{}")).body == b"hello"
        with pytest.raises(ConnectionError, match="compressed"):
            await direct.post({}, b"{}")


@in_a_loop
async def test_where_nobody_listens_it_says_so() -> None:
    for host in ("127.0.0.1:1", "no-such-host.invalid", f"{'a' * 70}.invalid"):
        gone = Transport(f"http://{host}/")
        with pytest.raises(UnreachableError):
            await gone.post({}, b"")
        await gone.close()


@in_a_loop
async def test_a_connection_that_lay_idle_for_long_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillopt.models.transport.KEPT", 0.05)
    async with raw(answer_plainly) as (server, direct):
        assert (await direct.post({}, b"")).body == b"1"
        await asyncio.sleep(0.2)
        assert (await direct.post({}, b"")).body == b"2"
        assert server.connections == 2


@in_a_loop
async def test_through_a_proxy_an_endpoint_answers_and_fails_as_it_does_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        body = b'{"choices": [{"message": {"content": "hello"}}]}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + (body if number == 1 else body[:9]))
        if number > 1:
            writer.close()

    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("A_KEY", "k-0123")
    async with raw(behave) as (server, _):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        chat = OpenAIChat("vllm:x", "x", url="http://far.invalid/v1", key_name="A_KEY", key_needed=True)
        try:
            assert (await chat.chat(REQUEST)).text == "hello"
            with pytest.raises(TransientError, match=r"far\.invalid") as cut:
                await chat.chat(REQUEST)
            assert cut.value.reached
        finally:
            await chat.close()
    head = server.heads[0].split("\r\n")
    assert head[0] == "POST http://far.invalid/v1/chat/completions HTTP/1.1"
    assert {"Authorization: Bearer k-0123", "Content-Type: application/json"} <= set(head)


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    url = "http://127.0.0.1:8000/v1"
    assert env_proxy(url) is None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")
    assert env_proxy(url) == "http://127.0.0.1:3128"
    assert env_proxy("https://127.0.0.1:8000/v1") is None
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert env_proxy(url) is None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999/v1", "ftp://127.0.0.1/v1", "127.0.0.1:8000", "http:///v1", "http://[::1/v1"]
)
def test_what_can_be_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(UserError, match="is not a URL"):
        OpenAIChat("vllm:x", "x", url=url, key_name="NO_KEY", key_needed=False)


def test_a_key_cannot_smuggle_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_KEY", "abc\r\nX-Other: 1")
    with pytest.raises(UserError, match="ODD_KEY contains a line break"):
        OpenAIChat("openai:x", "x", url="http://127.0.0.1:1/v1", key_name="ODD_KEY", key_needed=True)
