"""The simulated world as a loopback server with the OpenAI chat protocol (`skillopt sim serve`)."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from dataclasses import replace

from aiohttp import web

from skillopt.models.base import ChatRequest, CompletionBody, FormRefusedError, Schema, TransientError
from skillopt.sim.model import ConnectionCut, Garbled, SimOptions, SimulatedModel, Torn
from skillopt.sim.optimizer import spelled_out_schema


class SimServer:
    """Serves one SimulatedModel. `requests` counts calls by their content; `most_in_flight` is the largest number of
    calls in flight at the same time."""

    def __init__(self, options: SimOptions, api_key: str = "") -> None:
        self._model = SimulatedModel("sim:world", options)
        self._api_key = api_key
        self.requests: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight = 0
        self.turned_away = 0
        self.app = web.Application(client_max_size=64 * 2**20)
        self.app.router.add_post("/v1/chat/completions", self._chat)
        self.app.router.add_get("/v1/models", self._models)
        self.app.router.add_get("/stats", self._stats)

    async def start(self, port: int = 0) -> tuple[web.AppRunner, int]:
        """Listen on 127.0.0.1; port 0 chooses a free port. Return the runner and the port. The caller must clean up the
        runner."""
        runner = web.AppRunner(self.app, handle_signals=False, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        return runner, int(runner.addresses[0][1])

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        sent = http.headers.get("Authorization", "")
        if self._api_key and not hmac.compare_digest(sent.encode(), f"Bearer {self._api_key}".encode()):
            return _problem(401, "Incorrect API key provided.", code="invalid_api_key")
        body = await http.read()
        self.requests[body.decode(errors="replace")] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = await self._model.chat(_request(await http.json()))
        except (TransientError, FormRefusedError, KeyError, TypeError, ValueError) as error:
            return await self._failed(http, error)
        finally:
            self.in_flight -= 1
        usage = reply.usage
        return web.json_response(
            {
                "id": "sim",
                "object": "chat.completion",
                "model": "sim",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": reply.finish_reason,
                        "message": {"role": "assistant", "content": reply.text},
                    }
                ],
                "usage": {
                    "prompt_tokens": usage.prompt,
                    "completion_tokens": usage.completion,
                    "total_tokens": usage.prompt + usage.completion,
                },
            }
        )

    async def _failed(self, http: web.Request, error: Exception) -> web.StreamResponse:
        """Answer a call that failed because of a simulated fault: with an HTTP error, or by breaking the connection."""
        if isinstance(error, ConnectionCut):
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
        if isinstance(error, Garbled):
            return web.Response(text="<html>Bad gateway</html>", content_type="application/json")
        if isinstance(error, Torn):
            return await _broken_off(http)
        if isinstance(error, TransientError):
            self.turned_away += error.overloaded
            headers = {"Retry-After": f"{error.retry_after:g}"} if error.retry_after is not None else {}
            return _problem(429 if error.overloaded else 500, str(error), headers=headers)
        return _problem(400, str(error) if isinstance(error, FormRefusedError) else f"not a chat request: {error!r}")

    async def _models(self, http: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "sim", "object": "model"}]})

    async def _stats(self, http: web.Request) -> web.Response:
        counts = self.requests
        stats = {
            "requests": counts.total(),
            "distinct": len(counts),
            "most_in_flight": self.most_in_flight,
            "turned_away": self.turned_away,
        }
        return web.json_response(stats)


def _request(data: CompletionBody) -> ChatRequest:
    messages = data["messages"]
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    wanted = data.get("response_format") or {}
    schema = None
    if wanted.get("type") == "json_schema":
        schema = Schema(name=wanted["json_schema"]["name"], body=wanted["json_schema"]["schema"])
    seed = data.get("seed")
    request = ChatRequest(messages=tuple(messages), schema=schema, seed=seed if isinstance(seed, int) else None)
    if wanted.get("type") == "json_object" and (spelled := spelled_out_schema(request)):
        return replace(request, schema=replace(spelled, form="json"))
    return request


async def _broken_off(http: web.Request) -> web.StreamResponse:
    """Send half of an answer, then close the connection."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "200"})
    await response.prepare(http)
    await response.write(b'{"choices": [{"index": 0, "finish_reason": "stop", "mess')
    if http.transport is not None:
        http.transport.close()
    return response


def _problem(status: int, message: str, *, code: str = "", headers: dict[str, str] | None = None) -> web.Response:
    body = {"error": {"message": message, "type": "error", "code": code or None}}
    return web.json_response(body, status=status, headers=headers)


async def serve(options: SimOptions, port: int, api_key: str = "") -> None:
    """Serve the simulated world until the task is cancelled."""
    server = SimServer(options, api_key)
    runner, real_port = await server.start(port)
    print(f"Simulated endpoint at http://127.0.0.1:{real_port}/v1 (Ctrl-C ends it)", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
