"""The OpenAI chat protocol over aiohttp: OpenAI, Azure, vLLM and any compatible URL."""

from __future__ import annotations

import email.utils
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from skillopt.errors import UserError
from skillopt.models.base import (
    ChatReply,
    ChatRequest,
    FatalError,
    FormRefusedError,
    RefusedError,
    TransientError,
    Usage,
)

_THINKING = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_TRANSIENT = {408, 409, 425, 429}
_ITEM_CODES = {"content_filter", "context_length_exceeded", "string_above_max_length"}
_ITEM_WORDS = re.compile(r"maximum context length|context window|prompt is too long|content management policy", re.I)

_FORM_WORDS = re.compile(r"response_format|json_schema|json_object|structured.?output|guided.?(json|decoding)", re.I)


class OpenAIChat:
    """A model behind `POST …/chat/completions`."""

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
    ) -> None:
        if not re.match(r"https?://", url):
            raise UserError(f"{name}: '{url}' is not a URL; it must begin with http:// or https://")
        key = os.environ.get(key_name, "").strip()
        if key_needed and not key:
            raise UserError(f"{name}: no key; set {key_name} in the environment or in .env")
        self.name = name
        self.endpoint = url.rstrip("/")
        self._model = model
        self._key = key
        self._key_name = key_name
        self._headers = {key_header: f"Bearer {key}" if key_header == "Authorization" else key} if key else {}
        self._limit_field = limit_field
        self._query = dict(query or {})
        self._session: aiohttp.ClientSession | None = None

    async def chat(self, request: ChatRequest) -> ChatReply:
        if self._session is None:
            # The limiter bounds what is in flight; call.py's timeout bounds how long.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=True,
                headers=self._headers,
            )
        url = f"{self.endpoint}/chat/completions"
        try:
            async with self._session.post(url, json=self._payload(request), params=self._query) as response:
                body = await response.read()
                return self._reply(response.status, response.headers, body)
        except aiohttp.ClientConnectorError as error:
            raise TransientError(
                f"{self.endpoint}: cannot connect ({error.strerror or error})", reached=False
            ) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise TransientError(f"{self.endpoint}: {self._clean(str(error)) or type(error).__name__}") from None

    def _payload(self, request: ChatRequest) -> dict[str, Any]:
        payload: dict[str, Any] = {"model": self._model, "messages": list(request.messages)}
        if request.temperature is not None:
            payload["temperature"] = request.temperature
        if request.max_tokens is not None:
            payload[self._limit_field] = request.max_tokens
        if request.seed is not None:
            payload["seed"] = request.seed
        if request.schema is not None and request.schema.form == "json":
            payload["response_format"] = {"type": "json_object"}
        elif request.schema is not None and request.schema.form == "schema":
            schema = {"name": request.schema.name, "schema": request.schema.body, "strict": True}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        return payload

    def _reply(self, status: int, headers: Mapping[str, str], body: bytes) -> ChatReply:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if status != 200:
            raise self._error(status, headers, data, body)
        try:
            choice = data["choices"][0]
            text = choice["message"].get("content") or ""
            finish = choice.get("finish_reason") or "stop"
            usage = _usage(data.get("usage"))
            if not isinstance(text, str):
                raise TypeError
        except (TypeError, KeyError, IndexError, AttributeError):
            raise TransientError(f"{self.endpoint}: a reply that is no chat completion") from None
        if finish == "content_filter":
            raise RefusedError(f"{self.endpoint}: the content filter refused this item")
        return ChatReply(text=_THINKING.sub("", text), finish_reason=finish, usage=usage)

    def _error(self, status: int, headers: Mapping[str, str], data: Any, body: bytes) -> Exception:
        error = data.get("error") if isinstance(data, dict) else None
        detail = error if isinstance(error, dict) else {}
        words = str(detail.get("message") or (error if isinstance(error, str) else body[:300].decode(errors="replace")))
        code = str(detail.get("code") or "")
        said = f"{self.endpoint}: {status}: {self._clean(words)[:500]}"
        if status == 429 and code == "insufficient_quota":
            return FatalError(said)
        if status in _TRANSIENT or status >= 500:
            return TransientError(said, retry_after=_retry_after(headers))
        if status == 413 or (status in {400, 422} and (code in _ITEM_CODES or _ITEM_WORDS.search(words))):
            return RefusedError(said)
        if status in {400, 404, 415, 422} and _FORM_WORDS.search(words):
            return FormRefusedError(said)
        if status in {401, 403}:
            return FatalError(f"{said} (the key comes from {self._key_name})")
        return FatalError(f"{said} (model '{self._model}')")

    def _clean(self, text: str) -> str:
        """Endpoints like to repeat the key in their complaint."""
        return text.replace(self._key, "***") if self._key else text

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _usage(data: Any) -> Usage:
    if not isinstance(data, dict):
        return Usage()
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    numbers = (data.get("prompt_tokens"), data.get("completion_tokens"), cached)
    prompt, completion, hit = (int(n) if isinstance(n, int | float) else 0 for n in numbers)
    return Usage(prompt=prompt, completion=completion, cached=hit)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
