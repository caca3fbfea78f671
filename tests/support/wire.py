"""Loopback servers that speak the wire formats of real providers; what they answer is the simulated world's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web

from skillopt.models.base import ChatReply, ChatRequest, Schema
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.skill.tokens import count_tokens

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.contextmanager
def served(path: str, handler: Handler) -> Iterator[str]:
    """A server on loopback in a thread of its own, with one POST route; gives its URL."""
    app = web.Application(client_max_size=64 * 2**20)

    async def handle(http: web.Request) -> web.StreamResponse:
        return await handler(http)

    app.router.add_post(path, handle)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """An endpoint that somebody else runs: its URL, and the headers of each request that it gets, as one text."""
    heard: list[str] = []

    async def handle(http: web.Request) -> web.StreamResponse:
        heard.append("\n".join(f"{name}: {value}" for name, value in http.headers.items()))
        reply = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}], "usage": {}}
        return web.json_response(reply)

    with served("/{path:.*}", handle) as url:
        yield f"{url}/v1", heard


class AnthropicServer:
    """`POST /v1/messages`: system beside the messages, content in blocks, a schema as a tool that must be used."""

    def __init__(self, key: str, options: SimOptions | None = None) -> None:
        self.key = key
        self.bodies: list[dict[str, Any]] = []
        self._model = SimulatedModel("sim:world", options or SimOptions())
        self.cache: set[str] = set()
        """Prefixes that a reply was sent for; a request that is answered later reads them."""
        self.usages: list[dict[str, int]] = []

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        sent = http.headers.get("x-api-key") or http.headers.get("Authorization", "").removeprefix("Bearer ")
        if sent != self.key:
            return self._problem(401, "authentication_error", f"invalid x-api-key {sent}")
        assert http.headers["anthropic-version"]
        body = await http.json()
        self.bodies.append(body)
        if body["model"] != "claude-test":
            return self._problem(404, "not_found_error", f"model: {body['model']}")
        tools = body.get("tools") or []
        schema = Schema(name=tools[0]["name"], body=tools[0]["input_schema"]) if tools else None
        messages = [{"role": "system", "content": _plain(body.get("system", ""))}]
        messages += [{"role": m["role"], "content": _plain(m["content"])} for m in body["messages"]]
        prefix = "".join(block["text"] for block in _blocks(body.get("system")) if "cache_control" in block)
        cached = prefix in self.cache
        reply = await self._model.chat(ChatRequest(messages=tuple(m for m in messages if m["content"]), schema=schema))
        self.cache.add(prefix)
        tokens = min(count_tokens(prefix), reply.usage.prompt)
        usage = {"cache_read_input_tokens": tokens * cached, "cache_creation_input_tokens": tokens * (not cached)}
        if not prefix:
            usage["cache_read_input_tokens"] = 3
        self.usages.append(usage)
        return web.json_response(self._message(reply, schema, usage))

    def _message(self, reply: ChatReply, schema: Schema | None, cache: dict[str, int]) -> dict[str, Any]:
        thought = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
        block: dict[str, Any] = {"type": "text", "text": reply.text}
        if schema:
            block = {"type": "tool_use", "id": "toolu_1", "name": schema.name, "input": json.loads(reply.text)}
        usage = {"input_tokens": reply.usage.prompt - sum(cache.values()), "output_tokens": reply.usage.completion}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [thought, block],
            "stop_reason": "tool_use" if schema else "end_turn",
            "stop_sequence": None,
            "usage": usage | cache,
        }

    def _problem(self, status: int, kind: str, message: str) -> web.Response:
        return web.json_response({"type": "error", "error": {"type": kind, "message": message}}, status=status)


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else []


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


class AzureServer:
    """`POST /openai/deployments/{deployment}/chat/completions?api-version=…`, filter results, Azure's errors."""

    PATH = "/openai/deployments/{deployment}/chat/completions"

    def __init__(self, key: str = "", token: str = "", options: SimOptions | None = None) -> None:
        self.key, self.token = key, token
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self._model = SimulatedModel("sim:world", options or SimOptions())

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        by_key = self.key and http.headers.get("api-key") == self.key
        by_token = self.token and http.headers.get("Authorization") == f"Bearer {self.token}"
        if not by_key and not by_token:
            words = "Access denied due to invalid subscription key or wrong API endpoint."
            return web.json_response({"error": {"code": "401", "message": words}}, status=401)
        deployment = http.match_info["deployment"]
        self.asked.append((deployment, http.query["api-version"]))
        if deployment != "gpt-test":
            words = "The API deployment for this resource does not exist."
            return web.json_response({"error": {"code": "DeploymentNotFound", "message": words}}, status=404)
        body = await http.json()
        self.bodies.append(body)
        wanted = (body.get("response_format") or {}).get("json_schema")
        schema = Schema(name=wanted["name"], body=wanted["schema"]) if wanted else None
        reply = await self._model.chat(ChatRequest(messages=tuple(body["messages"]), schema=schema))
        return web.json_response(completion(reply))


def completion(reply: ChatReply) -> dict[str, Any]:
    """A reply in the OpenAI chat protocol as Azure writes it."""
    safe = {"hate": {"filtered": False, "severity": "safe"}}
    choice = {
        "index": 0,
        "finish_reason": reply.finish_reason,
        "content_filter_results": safe,
        "message": {"role": "assistant", "content": reply.text, "refusal": None},
    }
    usage = {
        "prompt_tokens": reply.usage.prompt,
        "completion_tokens": reply.usage.completion,
        "prompt_tokens_details": {"cached_tokens": reply.usage.cached},
    }
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
