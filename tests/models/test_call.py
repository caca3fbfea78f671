"""Every paid call goes through one place: it is journalled, limited, retried, counted, and never paid for twice."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.models import http, open_model
from skillopt.models.base import ChatReply, FatalError, RefusedError, Schema, TransientError
from skillopt.models.call import Budget, Caller, Limiter, Switch, gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.record.journal import Journal

KEY = "sk-secret-0123456789abcdef"
AT_ONCE = {"Retry-After": "0"}
USED = {"prompt_tokens": 100, "completion_tokens": 20}

Behaviour = Callable[[dict[str, Any], int], web.Response | Awaitable[web.Response] | None]
"""What the server does with a request's payload, and with its number from 1; None is never to answer."""


def good(text: str = "ok", finish: str = "stop") -> web.Response:
    message = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    return web.json_response({"choices": [message], "usage": USED})


def bad(status: int, message: str = "no", code: str = "", headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status, headers=headers)


class Server:
    """An OpenAI-compatible endpoint on loopback that behaves as the test wants."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.url = ""
        self.payloads: list[dict[str, Any]] = []
        self.in_flight = self.most_in_flight = 0
        self.arrived, self.over = asyncio.Event(), asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        payload = await request.json()
        self.payloads.append(payload)
        self.arrived.set()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            response = self.behave(payload, len(self.payloads))
            if response is None:
                await self.over.wait()
                return bad(500)
            return response if isinstance(response, web.Response) else await response
        finally:
            self.in_flight -= 1


@asynccontextmanager
async def serving(behave: Behaviour) -> AsyncIterator[Server]:
    server = Server(behave)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        server.over.set()
        await runner.cleanup()


class Desk:
    """A journal and callers on it, opened and closed together."""

    def __init__(self, url: str, path: Path, **sections: dict[str, Any]) -> None:
        hardware = {"vllm_url": url, "max_retries": 3, "call_timeout": 10, **sections.pop("hardware", {})}
        models = {"target_model": "vllm:m", "optimizer_model": "vllm:m"}
        self.config = Config.parse({"hardware": hardware, "models": models, **sections})
        self.journal = Journal(path)
        self.budget = Budget(self.config.budget, self.journal)
        self.switch = Switch()
        self._opened: list[Any] = []

    def caller(self, role: str = "target", *, deterministic: bool = False, width: int = 8) -> Caller:
        model = open_model(role, self.config)
        self._opened.append(model)
        return Caller(
            model=model,
            role=role,
            journal=self.journal,
            limiter=Limiter(width),
            budget=self.budget,
            switch=self.switch,
            hardware=self.config.hardware,
            deterministic=deterministic,
        )

    async def __aenter__(self) -> Desk:
        return self

    async def __aexit__(self, *error: object) -> None:
        for model in self._opened:
            await model.close()
        self.journal.__exit__()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "journal.sqlite"
    for file in tmp_path.rglob("*"):
        assert KEY.encode() not in file.read_bytes(), f"the key is in {file.name}"


def call(caller: Caller, text: str = "hello", label: str = "") -> Coroutine[Any, Any, ChatReply]:
    return caller([{"role": "user", "content": text}], stage="rollout", label=label)


def run(
    behave: Behaviour, path: Path, work: Callable[[Server, Desk], Awaitable[Any]], **sections: dict[str, Any]
) -> Any:
    """Serve, open a desk, do the work."""

    async def whole() -> Any:
        async with serving(behave) as server, Desk(server.url, path, **sections) as desk:
            return await work(server, desk)

    return asyncio.run(whole())


# The journal


def test_what_is_in_the_journal_costs_nothing_also_after_reopening(path: Path) -> None:
    async def whole() -> None:
        async with serving(lambda payload, n: good(f"reply {n}")) as server:
            async with Desk(server.url, path) as desk:
                caller = desk.caller()
                first = await call(caller, label="a")
                assert await call(caller, label="a") == first
                assert caller.from_journal == 1
            async with Desk(server.url, path, budget={"max_calls": 1}) as desk:
                caller = desk.caller()
                assert await call(caller, label="a") == first
                assert caller.from_journal == 1
                (total,) = desk.journal.totals()
                assert (total.calls, total.prompt_tokens, total.completion_tokens) == (1, 100, 20)
            assert len(server.payloads) == 1

    asyncio.run(whole())


def test_a_deterministic_model_is_never_asked_the_same_twice_whatever_the_label(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(deterministic=True)
        replies = {(await call(caller, label=label)).text for label in ("a", "b", "c")}
        assert replies == {"reply 1"}
        assert "seed" not in server.payloads[0]

    run(lambda payload, n: good(f"reply {n}"), path, work)


def test_a_noisy_model_gives_each_label_a_fresh_sample_and_keeps_it(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller()
        labels = ["a", "b", "c", "a", "b"]
        assert [(await call(caller, label=label)).text for label in labels] == [f"reply {n}" for n in (1, 2, 3, 1, 2)]
        assert len({payload["seed"] for payload in server.payloads}) == 3

    run(lambda payload, n: good(f"reply {n}"), path, work)


def test_another_message_is_another_request(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(deterministic=True)
        for text in ("a", "b", "a"):
            await call(caller, text)
        assert [payload["messages"][0]["content"] for payload in server.payloads] == ["a", "b"]

    run(lambda payload, n: good(), path, work)


def test_equal_requests_in_flight_are_sent_once(path: Path) -> None:
    async def slowly(payload: dict[str, Any], number: int) -> web.Response:
        await asyncio.sleep(0.05)
        return good(f"reply {number}")

    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(deterministic=True)
        replies = await gather_all(call(caller, label=str(n)) for n in range(10))
        assert {reply.text for reply in replies} == {"reply 1"}
        assert len(server.payloads) == 1

    run(slowly, path, work)


def test_those_who_wait_for_the_same_request_share_its_failure_and_may_ask_again(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(deterministic=True)
        results = await asyncio.gather(*(call(caller) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(result, RefusedError) for result in results)
        assert (await call(caller)).text == "ok"
        assert len(server.payloads) == 2

    run(lambda payload, n: bad(400, code="content_filter") if n == 1 else good(), path, work)


def test_a_caller_who_is_cancelled_takes_none_of_those_who_wait_with_him(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(deterministic=True)
        first, *others = [asyncio.create_task(call(caller)) for _ in range(3)]
        await server.arrived.wait()
        first.cancel()
        assert [reply.text for reply in await gather_all(others)] == ["reply 2", "reply 2"]
        assert first.cancelled()
        assert len(server.payloads) == 2

    run(lambda payload, n: None if n == 1 else good(f"reply {n}"), path, work)


def test_replies_of_one_endpoint_are_not_taken_for_those_of_another(path: Path) -> None:
    async def whole() -> None:
        async with serving(lambda payload, n: good("one")) as first, serving(lambda payload, n: good("two")) as second:
            for server, text in ((first, "one"), (second, "two")):
                async with Desk(server.url, path) as desk:
                    assert (await call(desk.caller(deterministic=True))).text == text

    asyncio.run(whole())


# Retries


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which callers and limiters wait, in order."""
    asked: list[float] = []
    sleep = Switch.sleep

    async def noted(self: Switch, seconds: float) -> None:
        asked.append(seconds)
        await sleep(self, seconds)

    monkeypatch.setattr(Switch, "sleep", noted)
    return asked


def test_a_429_is_tried_again_after_the_time_it_asks_for(path: Path, waits: list[float]) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller()
        assert (await call(caller)).text == "ok"
        assert 0.4 <= waits[0] < 0.5
        assert (caller.retries, len(server.payloads)) == (1, 2)

    run(lambda payload, n: bad(429, headers={"Retry-After": "0.4"}) if n == 1 else good(), path, work)


def test_without_a_wish_of_the_endpoint_a_retry_waits_a_little(
    path: Path, real_waits: None, waits: list[float]
) -> None:
    async def work(server: Server, desk: Desk) -> None:
        assert (await call(desk.caller())).text == "ok"
        assert 0.3 < waits[0] < 0.7

    run(lambda payload, n: bad(500) if n == 1 else good(), path, work)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_what_may_heal_is_tried_again(path: Path, status: int) -> None:
    async def work(server: Server, desk: Desk) -> None:
        assert (await call(desk.caller())).text == "ok"
        assert len(server.payloads) == 3

    run(lambda payload, n: bad(status, headers=AT_ONCE) if n < 3 else good(), path, work)


def test_retries_are_bounded_and_leave_nothing_in_the_journal(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        with pytest.raises(TransientError, match=r"target: .*after 4 tries"):
            await call(desk.caller())
        assert len(server.payloads) == 4
        assert not desk.journal.totals()
        desk.switch.check()

    run(lambda payload, n: bad(500, headers=AT_ONCE), path, work)


def test_replies_that_are_no_completions_are_tried_again(path: Path) -> None:
    shapes: list[Any] = [{}, {"choices": []}, [], "x", {"choices": [{"message": {"content": 5}}]}, None]

    def behave(payload: dict[str, Any], number: int) -> web.Response:
        if number <= len(shapes):
            return web.json_response(shapes[number - 1])
        return web.Response(text="<html>busy</html>") if number == len(shapes) + 1 else good()

    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller()
        for _ in range(len(shapes) + 1):
            with pytest.raises(TransientError, match="not a chat completion"):
                await call(caller)
        assert (await call(caller)).text == "ok"

    run(behave, path, work, hardware={"max_retries": 0})


def test_a_connection_that_breaks_off_is_tried_again(path: Path) -> None:
    async def breaking(payload: dict[str, Any], number: int) -> web.Response:
        response = good()
        if number == 1:
            response.headers["Content-Length"] = "100000"
            response.force_close()
        return response

    async def work(server: Server, desk: Desk) -> None:
        assert (await call(desk.caller())).text == "ok"
        assert len(server.payloads) == 2

    run(breaking, path, work)


def test_a_call_that_hangs_is_given_up_and_tried_again(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        assert (await call(desk.caller())).text == "ok"
        assert len(server.payloads) == 2

    run(lambda payload, n: None if n == 1 else good(), path, work, hardware={"call_timeout": 0.2})


def test_an_endpoint_that_always_hangs_is_a_failure_and_not_an_answer(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        with pytest.raises(TransientError, match=r"no answer within 0\.1 s"):
            await call(desk.caller())
        assert not desk.journal.totals()

    run(lambda payload, n: None, path, work, hardware={"call_timeout": 0.1, "max_retries": 0})


def test_no_more_calls_are_in_flight_than_the_limiter_allows(path: Path) -> None:
    async def slowly(payload: dict[str, Any], number: int) -> web.Response:
        await asyncio.sleep(0.01)
        return good()

    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(width=3)
        await gather_all(call(caller, str(n)) for n in range(12))
        assert server.most_in_flight == 3
        assert len(server.payloads) == 12

    run(slowly, path, work)


# What does not heal


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "VLLM_API_KEY"), (403, "VLLM_API_KEY"), (404, "model 'm'"), (400, "model 'm'"), (402, "")],
)
def test_what_does_not_heal_ends_the_run_at_once(path: Path, status: int, hint: str) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller, other = desk.caller(width=1), desk.caller("optimizer")
        results = await asyncio.gather(*(call(caller, str(n)) for n in range(6)), return_exceptions=True)
        assert all(isinstance(result, FatalError) for result in results)
        assert hint in str(results[0])
        with pytest.raises(FatalError):
            await call(other)
        assert len(server.payloads) == 1

    run(lambda payload, n: bad(status), path, work)


def test_an_empty_account_is_no_rate_limit(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        with pytest.raises(FatalError):
            await call(desk.caller())
        assert len(server.payloads) == 1

    run(lambda payload, n: bad(429, "You exceeded your quota", "insufficient_quota"), path, work)


def test_what_is_in_flight_when_the_run_ends_is_kept(path: Path) -> None:
    async def behave(payload: dict[str, Any], number: int) -> web.Response:
        if payload["messages"][0]["content"] == "bad":
            return bad(401)
        await asyncio.sleep(0.1)
        return good("late")

    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(deterministic=True, width=2)
        with pytest.raises(FatalError):
            await gather_all([call(caller, "slow"), call(caller, "bad"), call(caller, "never sent")])
        assert len(server.payloads) == 2
        assert (await call(caller, "slow")).text == "late"

    run(behave, path, work)


def test_those_who_wait_for_a_retry_end_with_the_run(path: Path) -> None:
    def behave(payload: dict[str, Any], number: int) -> web.Response:
        waits = payload["messages"][0]["content"] == "waits"
        return bad(500, headers={"Retry-After": "250"}) if waits else bad(401)

    async def work(server: Server, desk: Desk) -> None:
        waiting = asyncio.create_task(call(desk.caller(), "waits"))
        await server.arrived.wait()
        await asyncio.sleep(0.05)
        with pytest.raises(FatalError):
            await call(desk.caller("optimizer"), "bad")
        with pytest.raises(FatalError):
            await waiting

    run(behave, path, work)


def test_nobody_listening_is_fatal_long_before_the_last_retry(path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"

        async def whole() -> None:
            async with Desk(url, path, hardware={"max_retries": 1000}) as desk:
                with pytest.raises(FatalError, match="is the server running") as caught:
                    await call(desk.caller())
                assert url in str(caught.value)

        asyncio.run(whole())


# What is refused for the item's own sake

GEMINI = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
BEDROCK = (
    "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum length."
)
LLAMA_SERVER = {
    "message": "the request exceeds the available context size. try increasing the context size",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 14429,
    "n_ctx": 8192,
}


@pytest.mark.parametrize(
    "response",
    [
        lambda: good("", "content_filter"),
        lambda: bad(400, "filtered", "content_filter"),
        lambda: bad(400, "The response was filtered due to Azure OpenAI's content management policy."),
        lambda: bad(400, "too long", "context_length_exceeded"),
        lambda: bad(400, "This model's maximum context length is 4096 tokens."),
        lambda: bad(413, "too big"),
        lambda: web.json_response([{"error": {"code": 400, "message": GEMINI, "status": "INVALID"}}], status=400),
        lambda: bad(400, "Unable to submit: the input token count is 33 but model only supports up to 32"),
        lambda: web.json_response({"message": "Input is too long for requested model."}, status=400),
        lambda: web.json_response({"Error": {"Message": BEDROCK, "Code": "ValidationException"}}, status=400),
        lambda: web.json_response({"error": {"code": 400, **LLAMA_SERVER}}, status=400),
        lambda: web.json_response({"error": {"code": 500, **LLAMA_SERVER}}, status=500),
        lambda: bad(400, "input length and `max_tokens` exceed context limit: 188240 + 20000 > 200000"),
        lambda: bad(400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    ],
    ids=[
        "finish", "filter", "policy", "context", "words", "413", "google", "vertex", "bedrock", "bedrock-boto",
        "llama-server", "llama-server-500", "anthropic", "vllm",
    ],
)  # fmt: skip
def test_a_filtered_or_too_long_item_is_refused_without_a_retry_and_the_run_goes_on(
    path: Path, response: Callable[[], web.Response]
) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller()
        (refused,) = await asyncio.gather(call(caller, "bad item"), return_exceptions=True)
        assert type(refused) is RefusedError
        assert (await call(caller, "good item")).text == "ok"
        assert len(server.payloads) == 2
        (total,) = desk.journal.totals()
        assert total.calls == 1

    run(lambda payload, n: response() if n == 1 else good(), path, work)


# The key


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
@pytest.mark.parametrize("as_json", [True, False])
def test_the_key_is_in_no_error_even_when_the_server_repeats_it(path: Path, status: int, as_json: bool) -> None:
    def echo(payload: dict[str, Any], number: int) -> web.Response:
        said = f"Incorrect API key provided: Bearer {KEY}"
        if as_json:
            return bad(status, said, headers=AT_ONCE)
        return web.Response(text=said, status=status, headers=AT_ONCE)

    async def work(server: Server, desk: Desk) -> None:
        with pytest.raises((FatalError, TransientError)) as caught:
            await call(desk.caller())
        assert "Incorrect API key provided: Bearer ***" in str(caught.value)
        assert KEY not in repr(caught.value)

    run(echo, path, work, hardware={"max_retries": 1, "max_retry_seconds": 0.05})


@pytest.mark.parametrize("before", range(270, 300, 3))
def test_no_piece_of_the_key_is_left_where_an_error_is_cut(path: Path, before: int) -> None:
    async def work(server: Server, desk: Desk) -> None:
        with pytest.raises(FatalError) as caught:
            await call(desk.caller())
        assert KEY[:8] not in str(caught.value)

    run(lambda payload, n: web.Response(text="x" * before + KEY, status=401), path, work)


def test_the_key_goes_to_the_endpoint_and_nowhere_else(path: Path) -> None:
    seen: list[str] = []

    async def whole() -> None:
        async def other(request: web.Request) -> web.Response:
            seen.extend(f"{name}: {value}" for name, value in request.headers.items())
            return good()

        app = web.Application()
        app.router.add_route("*", "/{any:.*}", other)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        elsewhere = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/chat/completions"
        try:
            async with (
                serving(lambda p, n: web.Response(status=307, headers={"Location": elsewhere})) as server,
                Desk(server.url, path) as desk,
            ):
                await asyncio.gather(call(desk.caller()), return_exceptions=True)
        finally:
            await runner.cleanup()

    asyncio.run(whole())
    assert not [line for line in seen if KEY in line]


# The budget


async def spend(desk: Desk, *, calls: int, width: int) -> list[Any]:
    caller = desk.caller(width=width)
    return await asyncio.gather(*(call(caller, str(n)) for n in range(calls)), return_exceptions=True)


async def slow_good(payload: dict[str, Any], number: int) -> web.Response:
    await asyncio.sleep(0.01)
    return good()


@pytest.mark.parametrize("width", [1, 4, 16])
def test_a_limit_of_calls_is_never_overrun(path: Path, width: int) -> None:
    async def work(server: Server, desk: Desk) -> None:
        results = await spend(desk, calls=16, width=width)
        assert len(server.payloads) == sum(isinstance(r, ChatReply) for r in results) == 5
        stopped = [r for r in results if isinstance(r, Stopped)]
        assert len(stopped) == 11
        assert "budget.max_calls" in str(stopped[0])

    run(slow_good, path, work, budget={"max_calls": 5})


@pytest.mark.parametrize(
    "budget", [{"max_tokens": 1000}, {"max_usd": 1.0, "prices": {"vllm:m": {"input": 9000, "output": 5000}}}]
)
@pytest.mark.parametrize("width", [1, 4])
def test_limits_of_tokens_and_dollars_are_overrun_by_what_is_in_flight_at_most(
    path: Path, budget: dict[str, Any], width: int
) -> None:
    one = {"max_tokens": 120, "max_usd": 1.0}  # what one call takes: 100 tokens at 0.9 cents and 20 at 0.5
    name = next(iter(budget))

    async def work(server: Server, desk: Desk) -> None:
        results = await spend(desk, calls=30, width=width)
        paid = sum(isinstance(r, ChatReply) for r in results) * one[name]
        assert any(isinstance(r, Stopped) and f"budget.{name}" in str(r) for r in results)
        assert paid <= budget[name] + width * one[name]
        assert paid > 0

    run(slow_good, path, work, budget=budget)


def test_a_limit_of_minutes_stops_the_run(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        await asyncio.sleep(0.05)
        with pytest.raises(Stopped, match=r"budget\.max_minutes"):
            await call(desk.caller())
        assert not server.payloads

    run(slow_good, path, work, budget={"max_minutes": 0.0005})


def test_the_budget_counts_earlier_sessions_and_goes_on_when_it_is_raised(path: Path) -> None:
    async def whole() -> None:
        async with serving(slow_good) as server:
            for limit, sent in ((3, 3), (3, 3), (5, 5)):
                async with Desk(server.url, path, budget={"max_calls": limit}) as desk:
                    await spend(desk, calls=8, width=2)
                assert len(server.payloads) == sent

    asyncio.run(whole())


def test_calls_without_a_reply_are_not_counted(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller()
        for text in ("a", "b"):
            assert (await call(caller, text)).text == "ok"
        with pytest.raises(Stopped):
            await call(caller, "c")

    run(lambda payload, n: good() if n % 2 == 0 else bad(500, headers=AT_ONCE), path, work, budget={"max_calls": 2})


@pytest.mark.parametrize(
    "response",
    [
        lambda: web.json_response({"choices": [{"message": {"content": "x", "tool_calls": 5}}], "usage": USED}),
        lambda: web.json_response({"choices": [], "usage": USED}),
        lambda: web.json_response({"choices": [{"message": {}, "finish_reason": "content_filter"}], "usage": USED}),
        lambda: web.Response(body=b" " * (9 * 2**20)),
        lambda: web.json_response({}),
    ],
    ids=["tool calls", "no choice", "filtered", "too long", "no usage"],
)
def test_replies_that_cannot_be_used_are_counted(path: Path, response: Callable[[], web.Response]) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(width=1)
        results = await asyncio.gather(*(call(caller, str(n)) for n in range(6)), return_exceptions=True)
        assert len(server.payloads) == 2
        assert any(isinstance(r, Stopped) and "budget.max_calls" in str(r) for r in results)

    run(lambda payload, n: response(), path, work, budget={"max_calls": 2}, hardware={"max_retries": 0})


def test_tokens_of_replies_that_cannot_be_used_are_counted(path: Path) -> None:
    async def work(server: Server, desk: Desk) -> None:
        caller = desk.caller(width=1)
        await asyncio.gather(*(call(caller, str(n)) for n in range(6)), return_exceptions=True)
        assert len(server.payloads) == 3
        assert desk.budget.spent()["tokens"] == (360, 300)

    unusable = {"choices": [{"message": {"content": "x", "tool_calls": 5}}], "usage": USED}
    run(lambda *_: web.json_response(unusable), path, work, budget={"max_tokens": 300}, hardware={"max_retries": 0})


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("body", ["a" * 8_000_000, json.dumps({"error": {"message": "a" * 8_000_000}})])
def test_no_long_error_occupies_the_trainer(
    path: Path, status: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the beginning of an error is searched. What is searched is counted, not timed."""
    searched = []

    class Counting:
        def __init__(self, pattern: Any) -> None:
            self.pattern = pattern

        def search(self, text: str) -> Any:
            searched.append(len(text))
            return self.pattern.search(text[:1000])

    for name in ("_ITEM_WORDS", "_FORM_WORDS", "_UNWANTED"):
        monkeypatch.setattr(http, name, Counting(getattr(http, name)))

    async def work(server: Server, desk: Desk) -> None:
        with pytest.raises((TransientError, FatalError)):
            await call(desk.caller())

    run(lambda *_: web.Response(status=status, text=body), path, work, hardware={"max_retries": 0})
    assert searched
    assert max(searched) < 100_000


# Structured replies

BODY = {"type": "object", "properties": {"memory": {"type": "string"}}, "required": ["memory"]}
SCHEMA = Schema(name="meta_skill", body=BODY)


def memory(value: Any) -> str:
    if not isinstance(value, dict) or not isinstance(value.get("memory"), str):
        raise ValueError("it has no memory")
    return str(value["memory"])


def asking(path: Path, *replies: Callable[[], web.Response]) -> tuple[CheckedReply[str], list[dict[str, Any]]]:
    async def work(server: Server, desk: Desk) -> tuple[CheckedReply[str], list[dict[str, Any]]]:
        optimizer = desk.caller("optimizer")
        messages = [{"role": "user", "content": "Remember."}]
        answer = await ask(optimizer, messages, SCHEMA, memory, label="m")
        sent = len(server.payloads)
        again = await ask(optimizer, messages, SCHEMA, memory, label="m")
        assert len(server.payloads) == sent or not stored(path)
        assert again.value == answer.value
        return answer, server.payloads[:sent]

    return run(lambda payload, n: replies[min(n, len(replies)) - 1](), path, work)  # type: ignore[no-any-return]


def stored(path: Path) -> list[tuple[int, str, str]]:
    """Attempt, stage and text of every journalled reply."""
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT attempt, stage, reply FROM replies ORDER BY attempt").fetchall()
    database.close()
    return [(attempt, stage, json.loads(reply)["text"]) for attempt, stage, reply in rows]


def test_a_request_carries_its_schema_under_its_stage(path: Path) -> None:
    answer, (payload,) = asking(path, lambda: good('{"memory": "x"}'))
    assert answer.value == "x"
    assert payload["response_format"]["json_schema"]["name"] == "meta_skill"
    assert payload["response_format"]["json_schema"]["schema"] == SCHEMA.body


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (lambda: good('{"memory": "x"', "stop"), "cut off|not valid JSON"),
        (lambda: good('{"memory": "whole"}', "length"), "cut off"),
        (lambda: good("no JSON at all"), "not valid JSON"),
        (lambda: good('{"other": 1}'), "no memory"),
        (lambda: good("[" * 100_000), "."),
        (lambda: good(""), "."),
    ],
    ids=["malformed", "cut-off", "prose", "wrong", "deep", "empty"],
)
def test_a_reply_that_cannot_be_used_is_asked_for_once_more_with_the_reason(
    path: Path, first: Callable[[], web.Response], problem: str
) -> None:
    answer, payloads = asking(path, first, lambda: good('{"memory": "second"}'))
    assert answer.value == "second"
    assert len(payloads) == 2
    asked, said, why = payloads[1]["messages"]
    assert asked == payloads[0]["messages"][0]
    assert said["role"] == "assistant"
    assert said["content"], "the bad reply is shown, or said to be empty"
    note = why["content"]
    assert "could not be used" in note
    assert [attempt for attempt, _, _ in stored(path)] == [1, 2]
    assert re.search(problem, note)


def test_after_the_second_unusable_reply_it_is_lost_with_a_reason_and_both_are_in_the_journal(path: Path) -> None:
    answer, payloads = asking(path, lambda: good("first junk"), lambda: good('{"memory": "cut', "length"))
    assert answer.value is None
    assert "cut off" in answer.lost
    assert not answer.unreachable
    assert len(payloads) == 2
    assert stored(path) == [(1, "meta_skill", "first junk"), (2, "meta_skill", '{"memory": "cut')]


def test_an_endpoint_that_fails_or_refuses_loses_the_reply_for_its_own_sake(path: Path) -> None:
    answer, _ = asking(path, lambda: bad(500, headers=AT_ONCE))
    assert (answer.value, answer.unreachable) == (None, True)
    assert "after 4 tries" in answer.lost
    assert stored(path) == []


def test_a_refused_question_is_lost_and_nobody_is_unreachable(path: Path) -> None:
    answer, _ = asking(path, lambda: bad(400, "filtered", "content_filter"))
    assert (answer.value, answer.unreachable) == (None, False)
    assert "filtered" in answer.lost
