"""The OpenAI chat protocol over HTTP: OpenAI, Azure, vLLM and any compatible URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from skillopt.chat_protocol import FunctionCall
from skillopt.errors import MissingKey, UserError
from skillopt.keys import redact
from skillopt.models import entra
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    CompletionBody,
    FatalError,
    ModelSpec,
    RefusedError,
    ToolCall,
    TransientError,
    Usage,
)
from skillopt.models.http import ParameterRefused, classify, counted, refused_parameter, web_page
from skillopt.models.transport import Transport, UnreachableError, UnreadableError
from skillopt.version import __version__


class OpenAIChat(ChatModel):
    """A model behind `POST …/chat/completions`.

    If the endpoint refuses a parameter (temperature, seed, reasoning_effort, the name of the token limit), the request
    is sent again without this parameter. Later requests leave it out, too.
    """

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
        self._model = model
        self._key = key
        self._key_name = key_name
        self._key_header = key_header
        self._token = token
        self._limit_fields = [limit_field, *({"max_tokens", "max_completion_tokens"} - {limit_field})]
        self._left_out: set[str] = set()
        self._transport = Transport(f"{self.endpoint}/chat/completions" + (f"?{urlencode(query)}" if query else ""))
        self._answered = False

    async def chat(self, request: ChatRequest) -> ChatReply:
        while True:
            payload = self._payload(request)
            try:
                status, received, body = await self._transport.post(await self._headers(), json.dumps(payload).encode())
                return self._reply(status, received, body, payload)
            except ParameterRefused as refused:
                self._left_out.add(refused.name)
            except UnreachableError as error:
                text = f"{self.endpoint}: cannot connect ({self._clean(str(error))})"
                raise TransientError(text, reached=False) from None
            except ConnectionError as error:
                usage = Usage() if isinstance(error, UnreadableError) else None
                words = self._clean(str(error)) or type(error).__name__
                raise TransientError(f"{self.endpoint}: {words}", usage=usage) from None

    async def _headers(self) -> dict[str, str]:
        if self._token is not None:
            self._key = await self._token()
            return {**_JSON, "Authorization": f"Bearer {self._key}"}
        if not self._key:
            return _JSON
        return {**_JSON, self._key_header: f"Bearer {self._key}" if self._key_header == "Authorization" else self._key}

    def _payload(self, request: ChatRequest) -> CompletionBody:
        payload: CompletionBody = {"model": self._model, "messages": list(request.messages)}
        limit_field = next((name for name in self._limit_fields if name not in self._left_out), "")
        optional = {
            "temperature": request.temperature,
            limit_field: request.max_tokens,
            "seed": request.seed,
            "reasoning_effort": request.effort or None,
        }
        present = {k: v for k, v in optional.items() if k and v is not None and k not in self._left_out}
        payload |= cast("CompletionBody", present)
        if request.tools:
            payload["tools"] = list(request.tools)
        if request.schema is not None and request.schema.form == "json":
            payload["response_format"] = {"type": "json_object"}
        elif request.schema is not None and request.schema.form == "schema":
            payload["response_format"] = request.schema.response_format()
        return payload

    def _reply(self, status: int, headers: Mapping[str, str], body: bytes, payload: CompletionBody) -> ChatReply:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if status != 200:
            raise self._error(status, headers, data if data is not None else body, payload)
        try:
            reply = read_completion(data)
        except (TypeError, KeyError, IndexError, AttributeError):
            raise self._no_completion(body, _usage(data.get("usage") if isinstance(data, dict) else None)) from None
        self._answered = True
        if reply.finish_reason == "content_filter":
            raise RefusedError(f"{self.endpoint}: the content filter refused this item", usage=reply.usage)
        return replace(reply, text=answer(reply.text))

    def _no_completion(self, body: bytes, usage: Usage) -> Exception:
        """The error for a response without a reply. If the response is a web page, and the URL has never sent a reply,
        the URL is probably incomplete, so another try does not help."""
        raw = body.decode(errors="replace")
        page = web_page(raw)
        content = self._clean(page or " ".join(raw.split()))[:200] or "nothing"
        text = f"{self.endpoint}: the reply is not a chat completion but {content}"
        hint = self._try_url() if page and not self._answered else ""
        return FatalError(f"{text}{hint}") if hint else TransientError(text, usage=usage)

    def _try_url(self) -> str:
        """A hint if the URL may be incomplete, because most servers have their API below /v1; else empty."""
        api_path = re.search(r"/(v\d+\w*|openai|api)(/|$)", urlsplit(self.endpoint).path)
        return "" if api_path else f"; is the URL complete? Try {self.endpoint}/v1"

    def _error(self, status: int, headers: Mapping[str, str], body: Any, payload: CompletionBody) -> Exception:
        name = refused_parameter(status, body, [n for n in payload if n in _OPTIONAL])
        if name:
            return ParameterRefused(name)
        error = classify(status, headers, body, f"{self.endpoint}: {status}", self._clean)
        if isinstance(error, FatalError):
            hint = f"the key comes from {self._key_name}" if status in {401, 403} else f"model '{self._model}'"
            return FatalError(f"{error} ({hint}){self._try_url() if status in {404, 405} else ''}")
        return error

    def _clean(self, text: str) -> str:
        """The text without the key, which many endpoints repeat in an error."""
        return redact(text.replace(self._key, "***") if self._key else text)  # `redact` alone does not find short keys

    async def close(self) -> None:
        await self._transport.close()


def open_openai(spec: ModelSpec) -> OpenAIChat:
    """Make a model at any base URL."""
    return OpenAIChat(
        spec.name,
        spec.model,
        url=spec.base_url(),
        key_name=spec.key_name or spec.provider.key_name,
        key_needed=bool(spec.key_name) or not (spec.url or spec.provider.key_optional),
        limit_field=spec.provider.limit_field,
    )


def open_azure(spec: ModelSpec) -> OpenAIChat:
    """Make a model that is a deployment on Azure, with a key or a token of Entra ID."""
    key_name = spec.key_name or spec.provider.key_name
    by_token = not os.environ.get(key_name) and entra.available()
    return OpenAIChat(
        spec.name,
        spec.model,
        url=f"{spec.base_url().rstrip('/')}/openai/deployments/{spec.model}",
        key_name=entra.TOKEN_NAME if by_token else key_name,
        key_needed=True,
        key_header="api-key",
        limit_field=spec.provider.limit_field,
        query={"api-version": spec.config.hardware.azure_api_version},
        token=entra.EntraToken() if by_token else None,
    )


_JSON = {"Content-Type": "application/json", "User-Agent": f"skillopt/{__version__}"}
_OPTIONAL = {"temperature", "seed", "reasoning_effort", "max_tokens", "max_completion_tokens"}
"""Parameters that may be left out of a request."""


def check_url(name: str, url: str) -> None:
    """Refuse an invalid URL before anything is sent to it."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # half an IPv6 address, or an invalid port
        is_valid = False
    if not is_valid:
        raise UserError(f"{name}: '{url}' is not a URL; it must begin with http:// or https:// and name a host")


def read_completion(data: Any) -> ChatReply:
    """Convert the JSON of a chat completion to a reply; raises TypeError, LookupError or AttributeError if the JSON is
    not a chat completion."""
    choice = data["choices"][0]
    finish = choice.get("finish_reason")
    return ChatReply(
        text=_text(choice["message"].get("content")),
        finish_reason=finish if finish and isinstance(finish, str) else "stop",
        usage=_usage(data.get("usage")),
        tool_calls=_tool_calls(choice["message"].get("tool_calls")),
    )


def answer(text: str) -> str:
    """A reply's text without the model's thinking; empty if the thinking was cut off."""
    whole = text.encode("utf-8", "replace").decode()  # a reply cut inside an emoji has half a character
    thought, closed, rest = whole.lstrip().removeprefix("<think>").partition("</think>")
    shown = rest.lstrip() if closed and "<think>" not in thought else whole
    return "" if shown.lstrip().startswith("<think>") and "</think>" not in shown else shown


def _text(content: Any) -> str:
    """The text of a reply's content. If the content is a list of parts, the text parts are joined; other parts, such as
    thinking, are left out."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def _tool_calls(calls: Any) -> tuple[ToolCall, ...]:
    """The tool calls in the form of the protocol, without fields that a server may add."""
    called: list[ToolCall] = []
    for index, call in enumerate(calls or ()):
        name, arguments = str(call["function"]["name"]), call["function"].get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})  # some servers send an object
        function: FunctionCall = {"name": name, "arguments": text}
        called.append({"id": str(call.get("id") or f"call_{index}"), "type": "function", "function": function})
    return tuple(called)


def _usage(data: Any) -> Usage:
    if not isinstance(data, dict):
        return Usage()
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    prompt = counted(data.get("prompt_tokens"))
    return Usage(prompt=prompt, completion=counted(data.get("completion_tokens")), cached=min(counted(cached), prompt))
