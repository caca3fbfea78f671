"""Plain HTTP without a client library: an answer is read as it was meant, in whatever pieces, or it is an error."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from yarl import URL

from skillopt.errors import UserError
from skillopt.models.base import ChatRequest, TransientError
from skillopt.models.openai_chat import OpenAIChat
from skillopt.models.transport import (
    KEPT,
    LONGEST_HEAD,
    Answer,
    Connection,
    Direct,
    General,
    Reader,
    UnreachableError,
    open_transport,
)

REQUEST = ChatRequest(messages=({"role": "user", "content": "hello"},))
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b'2;name="a;b"\r\nhe\r\n00003 \r\nllo\r\n0\r\nExpires: never\r\nX: y\r\n\r\n'
)
ANNOUNCED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
WHOLE = {"plain": PLAIN, "chunked": CHUNKED, "announced": ANNOUNCED}
NO_ANSWER = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nContent-Length 5\r\n\r\nhello",
    "a folded header": b"HTTP/1.1 200 OK\r\nX: a\r\n b: c\r\nContent-Length: 0\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (LONGEST_HEAD // 5),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    "a length in foreign digits": "HTTP/1.1 200 OK\r\nContent-Length: ٥\r\n\r\nhello".encode(),
    "a coding that we did not ask for": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a chunk without size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000])
@pytest.mark.parametrize("form", WHOLE)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(form: str, pieces: int) -> None:
    reader, data = Reader(), WHOLE[form]
    cut = [data[start : start + pieces] for start in range(0, len(data), pieces)]
    *before, last = [reader.feed(piece) for piece in cut]
    assert not any(before)
    assert last is not None
    assert (last.status, last.body) == (200, b"hello")
    assert reader.reusable
    if form != "chunked":
        assert last.headers["X-a"] == "1"


@pytest.mark.parametrize("form", WHOLE)
def test_an_answer_that_is_cut_off_anywhere_is_an_error(form: str) -> None:
    for end in range(len(WHOLE[form])):
        reader = Reader()
        assert reader.feed(WHOLE[form][:end]) is None
        with pytest.raises(ConnectionError, match="ended before"):
            reader.feed(b"", ended=True)


@pytest.mark.parametrize("what", NO_ANSWER)
def test_what_is_no_answer_is_an_error_and_never_a_guess(what: str) -> None:
    with pytest.raises(ConnectionError, match="an answer"):
        Reader().feed(NO_ANSWER[what])


def test_without_a_length_the_answer_lasts_until_the_connection_ends() -> None:
    reader = Reader()
    assert reader.feed(b"HTTP/1.0 500 Oops\r\n\r\nhel") is None
    assert reader.feed(b"lo") is None
    assert reader.feed(b"", ended=True) == Answer(500, {}, b"hello")
    assert not reader.reusable


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK", False),
    ],
)
def test_a_connection_is_used_again_only_where_both_sides_know_where_they_are(head: bytes, reusable: bool) -> None:
    reader = Reader()
    assert reader.feed(head)
    assert reader.reusable is reusable


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
        self.behave, self.heads, self.connections = behave, list[str](), 0

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
async def raw(behave: Behave) -> AsyncIterator[tuple[Raw, Direct]]:
    server = Raw(behave)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    direct = Direct(URL(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/chat?a=b%20c"))
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
    assert f"Host: 127.0.0.1:{direct._port}" in first
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


@in_a_loop
async def test_a_reset_is_an_error_even_where_the_answer_lasts_until_the_end() -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n{}")
        await asyncio.sleep(0.05)
        writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0: RST
        writer.transport.abort()

    async with raw(reset) as (_, direct):
        with pytest.raises(ConnectionError):
            await direct.post({}, b"")


@in_a_loop
async def test_bytes_behind_an_answer_end_its_connection() -> None:
    connection = Connection()
    aborted: list[bool] = []

    class Pipe(asyncio.Transport):
        def write(self, data: object) -> None:
            for piece in (PLAIN, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfa"):
                connection.data_received(piece)

        def abort(self) -> None:
            aborted.append(True)

    connection.connection_made(Pipe())
    assert (await connection.ask(b"")).body == b"hello"
    assert aborted
    assert not connection.open


@in_a_loop
async def test_bytes_that_nobody_asked_for_answer_no_later_request() -> None:
    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await answer_plainly(reader, writer, number)
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake")

    async with raw(chatty) as (_, direct):
        assert (await direct.post({}, b"")).body == b"1"
        await asyncio.sleep(0.1)
        assert (await direct.post({}, b"")).body == b"2"


@in_a_loop
async def test_where_nobody_listens_it_says_so() -> None:
    with pytest.raises(UnreachableError, match=r"refused|Connect call failed"):
        await Direct(URL("http://127.0.0.1:1/")).post({}, b"")
    for host in ("no-such-host.invalid", f"{'a' * 70}.invalid"):
        with pytest.raises(UnreachableError):
            await Direct(URL(f"http://{host}/")).post({}, b"")


@in_a_loop
async def test_a_connection_that_lay_idle_for_long_is_not_trusted() -> None:
    async with raw(answer_plainly) as (server, direct):
        assert (await direct.post({}, b"")).body == b"1"
        direct._free[0].used -= KEPT
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
    async with raw(behave) as (server, direct):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{direct._port}")
        chat = OpenAIChat("vllm:x", "x", url="http://far.invalid/v1", key_name="A_KEY", key_needed=True)
        try:
            assert (await chat.chat(REQUEST)).text == "hello"
            assert isinstance(chat._transport, General)
            with pytest.raises(TransientError, match=r"far\.invalid") as cut:
                await chat.chat(REQUEST)
            assert cut.value.reached
        finally:
            await chat.close()
    head = server.heads[0].split("\r\n")
    assert head[0] == "POST http://far.invalid/v1/chat/completions HTTP/1.1"
    assert {"Authorization: Bearer k-0123", "Content-Type: application/json"} <= set(head)
    gone = General(URL("http://127.0.0.1:1/"), None)
    with pytest.raises(UnreachableError, match=r"refused|Connect call failed"):
        await gone.post({}, b"")
    await gone.close()


@in_a_loop
async def test_encryption_and_proxies_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    async def kind(url: str) -> type:
        transport = open_transport(URL(url))
        await transport.close()
        return type(transport)

    assert await kind("http://127.0.0.1:8000/v1") is Direct
    assert await kind("https://127.0.0.1:8000/v1") is General
    assert await kind("http://user:password@127.0.0.1:8000/v1") is General
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")
    assert await kind("http://127.0.0.1:8000/v1") is General
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert await kind("http://127.0.0.1:8000/v1") is Direct


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999/v1", "ftp://127.0.0.1/v1", "127.0.0.1:8000", "http:///v1", "http://[::1/v1"]
)
def test_what_can_be_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(UserError, match="is not a URL"):
        OpenAIChat("vllm:x", "x", url=url, key_name="NO_KEY", key_needed=False)


def test_a_key_cannot_smuggle_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_KEY", "abc\r\nX-Other: 1")
    with pytest.raises(UserError, match="ODD_KEY holds a line break"):
        OpenAIChat("openai:x", "x", url="http://127.0.0.1:1/v1", key_name="ODD_KEY", key_needed=True)
