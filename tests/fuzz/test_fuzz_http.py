"""An endpoint's answer, whatever it is: a reply that can be stored, or one of our own errors."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import math
import threading
from typing import Any

import pytest
from aiohttp import web
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from skillopt.models.base import ChatReply, ChatRequest, ModelError, TransientError
from skillopt.models.http import ParameterRefused, classify, retry_after
from skillopt.models.openai_chat import OpenAIChat
from skillopt.models.providers import ProviderChat
from skillopt.record.files import plain
from skillopt.record.journal import Journal, JournalRow

pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("ignore")]  # libraries warn of what they cannot read
WHOLE = {
    "id": "c1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": "<think>x</think>The answer.",
                "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
}
ANTHROPIC = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": [
        {"type": "text", "text": "The answer."},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 1},
}
COMPLAINTS = ["unsupported parameter temperature", "maximum context length", "response_format", "insufficient_quota"]
said = st.one_of(
    hostile.json_values,
    st.fixed_dictionaries(
        {"error": st.one_of(hostile.json_values, st.sampled_from(COMPLAINTS))},
        optional={"message": hostile.json_values},
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "error": st.fixed_dictionaries(
                {},
                optional={
                    "message": st.one_of(st.sampled_from(COMPLAINTS), hostile.json_values),
                    "code": st.one_of(st.sampled_from(["content_filter", "insufficient_quota"]), hostile.json_values),
                    "param": st.one_of(st.sampled_from(["temperature", "seed"]), hostile.json_values),
                },
            )
        },
    ),
)
bodies = st.one_of(
    hostile.misshapen(WHOLE).map(hostile.as_json),
    hostile.mutated(hostile.as_json(WHOLE)),
    said.map(hostile.as_json),
    hostile.raw,
    st.tuples(hostile.depths, st.sampled_from(["[]", "{}"])).map(lambda d: hostile.deep(d[0], "1", d[1]).encode()),
)
PLACES = hostile.paths_of(WHOLE)
odd_numbers = st.tuples(st.sampled_from([place for place in PLACES if "usage" in place]), hostile.numbers)
bodies |= odd_numbers.map(lambda change: hostile.as_json(hostile.replaced(WHOLE, *change)))
statuses = st.one_of(st.sampled_from([200, 200, 400, 401, 404, 413, 422, 429, 500, 503, 529]), st.integers(100, 999))
amounts = st.one_of(
    hostile.words,
    st.sampled_from(
        ["1", "0", "-1", "nan", "inf", "1e400", "6m0s", "20ms", "1.5.2s", "9" * 400, "Mon, 01 Jan 0001 00:00:00"]
    ),
    st.sampled_from(["Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 -0000", "Sat, 99 Foo 2024", "²"]),
)
header_names = st.sampled_from(
    ["Retry-After", "Retry-After-Ms"]
    + [f"x-ratelimit-{kind}-{what}" for kind in ("limit", "remaining", "reset") for what in ("requests", "tokens")]
)
headers = st.dictionaries(header_names, amounts, max_size=6)
REQUEST = ChatRequest(messages=({"role": "user", "content": "hello"},), temperature=0.0, max_tokens=5, seed=1)


@functools.cache
def model() -> OpenAIChat:
    return OpenAIChat("vllm:x", "x", url="http://127.0.0.1:1/v1", key_name="FUZZ_NO_KEY", key_needed=False)


@functools.cache
def journal() -> Journal:
    return Journal(":memory:")


def check_storable(reply: ChatReply, number: int = 0) -> None:
    """A reply goes into the journal, into files as UTF-8, and into the next request."""
    assert isinstance(reply.text, str)
    assert isinstance(reply.finish_reason, str)
    usage = reply.usage
    assert all(isinstance(n, int) and 0 <= n < 1 << 53 for n in (usage.prompt, usage.completion, usage.cached))
    reply.text.encode()
    json.dumps(reply.message(), allow_nan=False)
    json.dumps(plain({**vars(reply), "usage": vars(usage)}), ensure_ascii=False).encode()
    journal()._db.execute("DELETE FROM replies")
    journal().put(
        JournalRow(
            key="k",
            attempt=1,
            role="target",
            stage="s",
            model="m",
            turn=1,
            reply={**vars(reply), "usage": vars(usage)},
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cached_tokens=usage.cached,
        )
    )


def check_error(error: BaseException) -> None:
    assert isinstance(error, ModelError | ParameterRefused), repr(error)
    assert str(error).strip()
    if isinstance(error, TransientError) and error.retry_after is not None:
        assert 0 <= error.retry_after < math.inf


@holds_for(statuses, headers, bodies)
def test_any_answer_is_a_reply_that_can_be_stored_or_an_error_of_ours(
    status: int, given: dict[str, str], body: bytes
) -> None:
    try:
        reply = model()._reply(status, given, body, model()._payload(REQUEST))
    except Exception as error:
        check_error(error)
    else:
        check_storable(reply)


@holds_for(headers)
def test_any_headers_give_waits_that_end(given: dict[str, str]) -> None:
    wait = retry_after(given)
    assert wait is None or 0 <= wait < math.inf


@holds_for(statuses.filter(lambda status: status != 200), headers, said)
def test_any_complaint_is_an_error_of_ours_that_a_person_can_read(
    status: int, given: dict[str, str], body: Any
) -> None:
    error = classify(status, given, body, "here")
    check_error(error)
    assert len(str(error)) < 600


class Wire:
    """A loopback server that gives back whatever it was told to."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self.loop).result()

    async def _start(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _handle(self, request: web.Request) -> web.Response:
        await request.read()
        status, given, body = self.answer
        return web.Response(status=status, body=body, headers=given)


@functools.cache
def wire() -> Wire:
    return Wire()


@functools.cache
def over_wire() -> OpenAIChat:
    chat = OpenAIChat("vllm:x", "x", url=f"{wire().url}/v1", key_name="FUZZ_NO_KEY", key_needed=False)
    atexit.register(lambda: asyncio.run_coroutine_threadsafe(chat.close(), wire().loop).result())
    return chat


@functools.cache
def provider() -> ProviderChat:
    import os

    os.environ["FUZZ_KEY"] = "k" * 20
    return ProviderChat("anthropic:x", "anthropic", "claude-test", url=wire().url, key_name="FUZZ_KEY")


def ask(chat: OpenAIChat | ProviderChat) -> None:
    chat._left_out.clear()
    try:
        reply = asyncio.run_coroutine_threadsafe(chat.chat(REQUEST), wire().loop).result(300)
    except ModelError as error:
        check_error(error)
    else:
        check_storable(reply)


safe_headers = st.dictionaries(
    st.sampled_from(["Retry-After", "x-ratelimit-limit-tokens", "Content-Type", "Content-Encoding", "Location"]),
    st.sampled_from(["1", "nan", "gzip", "text/html", "application/json; charset=x", "http://127.0.0.1:1/", "-5", ""]),
    max_size=2,
)
wire_statuses = st.sampled_from([200, 200, 200, 204, 302, 400, 401, 404, 413, 422, 429, 500, 503, 529])


@holds_for(wire_statuses, safe_headers, bodies)
def test_whatever_comes_over_the_wire_is_a_reply_or_an_error_of_ours(
    status: int, given: dict[str, str], body: bytes
) -> None:
    wire().answer = (status, given, body)
    ask(over_wire())


provider_bodies = st.one_of(
    hostile.misshapen(ANTHROPIC).map(hostile.as_json),
    hostile.mutated(hostile.as_json(ANTHROPIC)),
    said.map(hostile.as_json),
)


@holds_for(wire_statuses, safe_headers, provider_bodies)
def test_whatever_another_provider_answers_is_a_reply_or_an_error_of_ours(
    status: int, given: dict[str, str], body: bytes
) -> None:
    wire().answer = (status, given, body)
    ask(provider())


@holds_for(statuses, said, headers)
def test_any_complaint_that_a_provider_s_library_passes_on_is_an_error_of_ours(
    status: int, body: Any, given: dict[str, str]
) -> None:
    from pydantic_ai.exceptions import ModelHTTPError  # not part of a light install

    complaint = ModelHTTPError(status, "x", body)
    complaint.headers = given  # type: ignore[attr-defined]
    check_error(provider()._explained(complaint, ["temperature", "seed", "max_tokens"]))
