"""A loopback model for coding-agent CLIs: one answer function behind the four protocols that they use.

OpenAI chat completions (opencode, qwen, copilot), OpenAI Responses (codex), Anthropic Messages (claude), and Gemini's
generateContent (gemini), each plain or streamed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Call:
    """A tool that the model wants called."""

    name: str
    arguments: dict[str, Any]


Answer = Callable[[list[str]], str | Call]
"""All texts of a request, in order, to the reply."""
USED = (1200, 34)
"""Tokens that every reply claims to have taken."""


class Refused(Exception):  # noqa: N818 - what happens to a request
    """An answer function raises this for an HTTP status in place of a reply."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def texts_in(value: Any) -> list[str]:
    """Every text of a request's messages, whatever the protocol calls them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    if isinstance(value, dict):
        keys = (
            "system",
            "instructions",
            "systemInstruction",
            "messages",
            "input",
            "contents",
            "content",
            "parts",
            "text",
            "output",
            "functionResponse",
            "response",
        )
        return [text for key in keys if key in value for text in texts_in(value[key])]
    return []


class CliEndpoint:
    """`requests` holds every body with its path."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.calls = 0
        self.app = web.Application(client_max_size=64 * 2**20)
        self.app.router.add_route("*", "/{path:.*}", self._any)

    async def start(self) -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(self.app, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, int(runner.addresses[0][1])

    async def _any(self, http: web.Request) -> web.StreamResponse:  # noqa: PLR0911 - a protocol each
        path = http.path
        if http.method != "POST":
            return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})
        try:
            body = await http.json()
        except ValueError:
            return web.json_response({})
        self.requests.append((path, body))
        known = ("/chat/completions", "/responses", "/messages", "generateContent", "streamGenerateContent")
        if not path.endswith(known):
            return web.json_response({"input_tokens": 1, "totalTokens": 1})
        try:
            text = await asyncio.to_thread(self._answer, texts_in(body))
        except Refused as no:
            error = {"type": "error", "message": no.message, "code": no.status, "status": "RESOURCE_EXHAUSTED"}
            return web.json_response({"type": "error", "error": error}, status=no.status, headers=no.headers)
        if isinstance(text, Call):
            self.calls += 1
            return await _called(http, body, text, f"call_{self.calls}")
        if path.endswith("/chat/completions"):
            return await _events(http, _chat_chunks(text)) if body.get("stream") else web.json_response(_chat(text))
        if path.endswith("/responses"):
            return await _events(http, _responses(text)) if body.get("stream") else web.json_response(_response(text))
        if path.endswith("/messages"):
            return await _events(http, _anthropic(text)) if body.get("stream") else web.json_response(_message(text))
        streamed = path.endswith("streamGenerateContent")
        return await _events(http, [_gemini(text)]) if streamed else web.json_response(_gemini(text))


async def _events(http: web.Request, events: list[dict[str, Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(http)
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        await response.write(f"{name}data: {json.dumps(event)}\n\n".encode())
    if http.path.endswith("/chat/completions"):
        await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": USED[0], "completion_tokens": USED[1], "total_tokens": sum(USED)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def _chat_chunks(text: str) -> list[dict[str, Any]]:
    whole = _chat(text)
    head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return [{**head, "choices": [first]}, {**head, "choices": [last], "usage": whole["usage"]}]


def _response(text: str) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "id": "i", "content": [{"type": "output_text", "text": text}]}
    usage = {
        "input_tokens": USED[0],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": USED[1],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(USED),
    }
    return {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage}


def _responses(text: str) -> list[dict[str, Any]]:
    whole = _response(text)
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]},
        {"type": "response.completed", "response": whole},
    ]


def _message(text: str) -> dict[str, Any]:
    usage = {"input_tokens": USED[0], "output_tokens": USED[1]}
    head = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return {**head, "stop_sequence": None, "content": [{"type": "text", "text": text}], "usage": usage}


def _anthropic(text: str) -> list[dict[str, Any]]:
    start = {**_message(""), "content": [], "stop_reason": None}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": USED[1]},
        },
        {"type": "message_stop"},
    ]


async def _called(http: web.Request, body: dict[str, Any], call: Call, identity: str) -> web.StreamResponse:
    """A tool call, in the protocol of the request's path."""
    path, given = http.path, json.dumps(call.arguments)
    if path.endswith("/messages"):
        return await _events(http, _anthropic_call(call, identity))
    if path.endswith("/responses"):
        item = {
            "type": "function_call",
            "id": f"fc_{identity}",
            "call_id": identity,
            "name": call.name,
            "arguments": given,
        }
        whole = {**_response(""), "output": [item]}
        first = {"type": "response.created", "response": {"id": "r"}}
        done = {"type": "response.output_item.done", "output_index": 0, "item": item}
        return await _events(http, [first, done, {"type": "response.completed", "response": whole}])
    if path.endswith("/chat/completions"):
        tool = {"id": identity, "type": "function", "function": {"name": call.name, "arguments": given}}
        if not body.get("stream"):
            whole = _chat("")
            whole["choices"][0] |= {
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "tool_calls": [tool]},
            }
            return web.json_response(whole)
        first, last = _chat_chunks("")
        first["choices"][0]["delta"] = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **tool}]}
        last["choices"][0]["finish_reason"] = "tool_calls"
        return await _events(http, [first, last])
    reply = _gemini("")
    reply["candidates"][0]["content"]["parts"] = [{"functionCall": {"name": call.name, "args": call.arguments}}]
    return await _events(http, [reply]) if path.endswith("streamGenerateContent") else web.json_response(reply)


def _anthropic_call(call: Call, identity: str) -> list[dict[str, Any]]:
    first, *_, last = _anthropic("")
    tool = {"type": "tool_use", "id": identity, "name": call.name, "input": {}}
    given = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        first,
        {"type": "content_block_start", "index": 0, "content_block": tool},
        {"type": "content_block_delta", "index": 0, "delta": given},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": USED[1]}},
        last,
    ]


def _gemini(text: str) -> dict[str, Any]:
    usage = {"promptTokenCount": USED[0], "candidatesTokenCount": USED[1], "totalTokenCount": sum(USED)}
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


@contextlib.contextmanager
def cli_endpoint(answer: Answer) -> Iterator[tuple[CliEndpoint, str]]:
    """The endpoint in a thread of its own; gives it and its root URL."""
    server = CliEndpoint(answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner, port = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    try:
        yield server, f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
