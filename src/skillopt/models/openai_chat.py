"""The OpenAI chat protocol over HTTP: OpenAI, Azure, vLLM and any compatible URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from skillopt.errors import MissingKey, UserError
from skillopt.keys import redact
from skillopt.models.base import ChatReply, ChatRequest, FatalError, RateLimits, RefusedError, TransientError, Usage
from skillopt.models.http import ParameterRefused, classify, counted, rate_limits, refused_parameter, web_page
from skillopt.models.transport import Transport, UnreachableError
from skillopt.version import __version__

_THINKING = re.compile(r"\A(?:\s*<think>)?(?:(?!<think>).)*?</think>\s*", re.DOTALL)
_UNFINISHED = re.compile(r"\A\s*<think>(?!.*</think>).*", re.DOTALL)


class OpenAIChat:
    """A model behind `POST …/chat/completions`.

    A parameter that the endpoint refuses (temperature, seed, reasoning_effort, the name of the token limit) is left out
    from then on. `limits` is what the last reply's headers said about the endpoint's rate limits.
    """

    deterministic = False

    def __init__(
        self,
        name: str,
        model: str,
        *,
        url: str,
        key_name: str,
        key_needed: bool,
        key_header: str = "Authorization",
        limit_field: str = "max_tokens",
        query: Mapping[str, str] | None = None,
        token: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        check_url(name, url)
        key = os.environ.get(key_name, "").strip()
        if key_needed and not key and token is None:
            raise MissingKey(f"{name}: no key; set {key_name} in the environment or in .env")
        if not key.isprintable():
            raise UserError(f"{name}: the key in {key_name} contains a line break or a control character")
        self.name = name
        self.endpoint = url.rstrip("/")
        self.limits: RateLimits | None = None
        self._model = model
        self._key = key
        self._key_name = key_name
        self._key_header = key_header
        self._token = token
        self._limit_fields = [limit_field, *({"max_tokens", "max_completion_tokens"} - {limit_field})]
        self._left_out: set[str] = set()
        self._url = f"{self.endpoint}/chat/completions" + (f"?{urlencode(query)}" if query else "")
        self._transport: Transport | None = None
        self._answered = False

    async def chat(self, request: ChatRequest) -> ChatReply:
        while True:
            payload = self._payload(request)
            try:
                return await self._post(payload)
            except ParameterRefused as refused:
                self._left_out.add(refused.name)

    async def _post(self, payload: dict[str, Any]) -> ChatReply:
        if self._transport is None:
            self._transport = Transport(self._url)
        headers = await self._headers()
        try:
            status, received, body = await self._transport.post(headers, json.dumps(payload).encode())
        except UnreachableError as error:
            raise TransientError(
                f"{self.endpoint}: cannot connect ({self._clean(str(error))})", reached=False
            ) from None
        except ConnectionError as error:
            raise TransientError(f"{self.endpoint}: {self._clean(str(error)) or type(error).__name__}") from None
        self.limits = rate_limits(received) or self.limits
        return self._reply(status, received, body, payload)

    async def _headers(self) -> dict[str, str]:
        if self._token is not None:
            self._key = await self._token()
            return {**_JSON, "Authorization": f"Bearer {self._key}"}
        if not self._key:
            return _JSON
        return {**_JSON, self._key_header: f"Bearer {self._key}" if self._key_header == "Authorization" else self._key}

    def _payload(self, request: ChatRequest) -> dict[str, Any]:
        payload: dict[str, Any] = {"model": self._model, "messages": list(request.messages)}
        limit_field = next((name for name in self._limit_fields if name not in self._left_out), "")
        optional = {
            "temperature": request.temperature,
            limit_field: request.max_tokens,
            "seed": request.seed,
            "reasoning_effort": request.effort or None,
        }
        payload |= {k: v for k, v in optional.items() if k and v is not None and k not in self._left_out}
        if request.tools:
            payload["tools"] = list(request.tools)
        if request.schema is not None and request.schema.form == "json":
            payload["response_format"] = {"type": "json_object"}
        elif request.schema is not None and request.schema.form == "schema":
            schema = {"name": request.schema.name, "schema": request.schema.body, "strict": True}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        return payload

    def _reply(self, status: int, headers: Mapping[str, str], body: bytes, payload: dict[str, Any]) -> ChatReply:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if status != 200:
            raise self._error(status, headers, data if data is not None else body, payload)
        try:
            choice = data["choices"][0]
            text = _text(choice["message"].get("content"))
            calls = tool_calls(choice["message"].get("tool_calls"))
            finish = choice.get("finish_reason")
            finish = finish if finish and isinstance(finish, str) else "stop"
            usage = _usage(data.get("usage"))
        except (TypeError, KeyError, IndexError, AttributeError):
            raise self._no_completion(body) from None
        self._answered = True
        if finish == "content_filter":
            raise RefusedError(f"{self.endpoint}: the content filter refused this item")
        return ChatReply(text=answer(text), finish_reason=finish, usage=usage, tool_calls=calls)

    def _no_completion(self, body: bytes) -> Exception:
        """An answer that is none. A web page at an incomplete URL where nothing else ever came is no bad moment."""
        raw = body.decode(errors="replace")
        page = web_page(raw)
        said = self._clean(page or " ".join(raw.split()))[:200] or "nothing"
        text = f"{self.endpoint}: the reply is not a chat completion but {said}"
        hint = self._try_url() if page and not self._answered else ""
        return FatalError(f"{text}{hint}") if hint else TransientError(text)

    def _try_url(self) -> str:
        """What to try where the address may be incomplete: most servers have their API below /v1."""
        known = re.search(r"/(v\d+\w*|openai|api)(/|$)", urlsplit(self.endpoint).path)
        return "" if known else f"; is the URL complete? Try {self.endpoint}/v1"

    def _error(self, status: int, headers: Mapping[str, str], said: Any, payload: dict[str, Any]) -> Exception:
        name = refused_parameter(status, said, [n for n in payload if n in _OPTIONAL])
        if name:
            return ParameterRefused(name)
        error = classify(status, headers, said, f"{self.endpoint}: {status}", self._clean)
        if isinstance(error, FatalError):
            hint = f"the key comes from {self._key_name}" if status in {401, 403} else f"model '{self._model}'"
            return FatalError(f"{error} ({hint}){self._try_url() if status in {404, 405} else ''}")
        return error

    def _clean(self, text: str) -> str:
        """Endpoints like to repeat the key in their complaint."""
        return redact(text.replace(self._key, "***") if self._key else text)  # its own also where it is short

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None


_JSON = {"Content-Type": "application/json", "User-Agent": f"skillopt/{__version__}"}
_OPTIONAL = {"temperature", "seed", "reasoning_effort", "max_tokens", "max_completion_tokens"}
"""What a request can do without."""


def check_url(name: str, url: str) -> None:
    """Refuse what cannot be an endpoint before anything is sent to it."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # half an IPv6 address, or a port that is none
        known = False
    if not known:
        raise UserError(f"{name}: '{url}' is not a URL; it must begin with http:// or https:// and name a host")


def answer(text: str) -> str:
    """The text without the model's thinking; thinking that was cut off leaves nothing."""
    whole = text.encode("utf-8", "replace").decode()  # a reply cut inside an emoji has half a character
    return _UNFINISHED.sub("", _THINKING.sub("", whole)) if "think>" in whole else whole


def _text(content: Any) -> str:
    """A reply's text, also where it comes in parts; parts that are thinking are no part of it."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def tool_calls(calls: Any) -> tuple[dict[str, Any], ...]:
    """Calls in the protocol's own form, nothing else of what a server may add."""
    return tuple(
        {
            "id": str(call.get("id") or f"call_{place}"),
            "type": "function",
            "function": {
                "name": str(call["function"]["name"]),
                "arguments": _arguments(call["function"].get("arguments")),
            },
        }
        for place, call in enumerate(calls or ())
    )


def _arguments(given: Any) -> str:
    """JSON text; some servers send the object itself."""
    return given if isinstance(given, str) else json.dumps(given or {})


def _usage(data: Any) -> Usage:
    if not isinstance(data, dict):
        return Usage()
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    prompt = counted(data.get("prompt_tokens"))
    return Usage(prompt=prompt, completion=counted(data.get("completion_tokens")), cached=min(counted(cached), prompt))
