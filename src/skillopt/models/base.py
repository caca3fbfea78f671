"""The interface of a model: its requests, its replies, and errors that tell the caller what to do after a failed
call."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skillopt.chat_protocol import CompletionBody, JsonObject, Message, ResponseFormat, ToolCall, ToolDefinition
from skillopt.errors import SkillOptError, UserError
from skillopt.keys import redact
from skillopt.provider_table import Provider, split_name

if TYPE_CHECKING:
    from skillopt.config import Config
    from skillopt.record.directory import RunDirectory

__all__ = ["CompletionBody", "JsonObject", "Message", "ToolCall", "ToolDefinition"]


def content_text(content: Any) -> str:
    """The content of a message as text; an image becomes `[image]`."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in content)
    return str(content or "")


Form = Literal["schema", "json", "text"]
"""The form in which a request asks for a structured reply: `schema` sends a JSON schema, `json` uses JSON mode, and
`text` only describes the reply in the message."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A JSON schema for the reply. `name` is the stage that sends the request, so a server can distinguish the
    stages."""

    name: str
    body: JsonObject
    form: Form = "schema"

    def response_format(self) -> ResponseFormat:
        """The schema in the form of the OpenAI chat protocol. All properties are made required, because a strict schema
        must require them."""
        body = _all_required(self.body)
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": body, "strict": True}}


def _all_required(schema: JsonObject) -> JsonObject:
    strict = dict(schema)
    if isinstance(items := schema.get("items"), dict):
        strict["items"] = _all_required(items)
    if isinstance(properties := schema.get("properties"), dict):
        inner = {name: _all_required(value) if isinstance(value, dict) else value for name, value in properties.items()}
        strict |= {"properties": inner, "required": list(properties)}
    return strict


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """One request to a model, the same for every provider."""

    messages: tuple[Message, ...]
    temperature: float | None = None
    """The sampling temperature; None: the endpoint decides."""
    max_tokens: int | None = None
    schema: Schema | None = None
    seed: int | None = None
    """A seed that differs for each sample of a noisy model; None for a deterministic model."""
    effort: str = ""
    """The reasoning effort; if empty, the endpoint decides."""
    tools: tuple[ToolDefinition, ...] = ()
    shared_prefix: bool = False
    """True if other requests begin with the same tools and system prompt. Caching this beginning then saves money."""

    def prefix(self) -> str:
        """System prompt and tools as one text; empty if the prefix is not shared."""
        first = self.messages[0] if self.messages else {"role": ""}
        system = content_text(first.get("content")) if first["role"] == "system" else ""
        return json.dumps([system, *self.tools]) if self.shared_prefix and (system or self.tools) else ""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens, and dollars if known, of one call or of an agent's whole rollout."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens that the endpoint read from its cache."""
    written: int = 0
    """Prompt tokens that the endpoint wrote into its cache; some providers charge extra for them."""
    usd: float | None = None
    """The cost that the model reported. If None, the cost is computed from prices."""


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """A model's reply and its usage."""

    text: str
    finish_reason: str = "stop"
    """The reason why the reply ended: `length` if it was cut off at max_tokens, `tool_calls` if the model calls tools,
    else `stop`. `known_reason` converts an endpoint's other words to these."""
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[ToolCall, ...] = ()
    seconds: float = 0.0
    """Seconds until the endpoint replied. Waits before the call and failed tries are not counted."""

    def message(self) -> Message:
        """The reply as the next message of the conversation."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [{**call} for call in self.tool_calls]
        return message


_REASONS = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
}


def known_reason(reason: str) -> str:
    """An endpoint's finish reason as `length`, `tool_calls` or `stop`."""
    return _REASONS.get(reason.lower(), "stop")


class ChatModel:
    """The base class of models. Subclasses set `name` and `endpoint` and define `chat`; every other member has a
    default.

    `chat` raises TransientError, RefusedError or FatalError (skillopt.models.base) and nothing else. It does not retry.
    """

    name: str = ""
    """The model's name as the user wrote it, `provider:model`."""
    endpoint: str = ""
    """The model's URL or the hash of its weights. It distinguishes models that have the same name."""
    deterministic: bool = False
    """True if the same request always gives the same reply."""
    max_concurrency: int | None = None
    """The maximum number of calls in flight; None: any number."""
    human_paced: bool = False
    """True if a person writes the replies. This may take hours, so a single call has no time limit."""
    ends_calls: bool = False
    """True if the model itself ends a slow call and raises TransientError."""
    waiting: Mapping[int, Path] = {}
    """The requests that wait for a person's reply: the folder of each request, by its number."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request and return the reply."""
        raise NotImplementedError(f"{type(self).__name__} has no method 'chat'")

    async def close(self) -> None:
        """Close connections and end processes."""


class NoModel(ChatModel):
    """Stands in for a model in a run that never calls it."""

    name = endpoint = "none"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        raise FatalError("this run has no model for this role")


class _Adapted(ChatModel):
    def __init__(self, model: Any) -> None:
        self._model = model
        self.name = self.endpoint = type(model).__name__
        members = [name for name in ChatModel.__annotations__ if hasattr(model, name)]
        vars(self).update({name: getattr(model, name) for name in members})

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply: ChatReply = await self._model.chat(request)
        return reply

    async def close(self) -> None:
        if hasattr(self._model, "close"):
            await self._model.close()


def as_chat_model(model: Any) -> ChatModel:
    """Wrap an object with a method `chat` as a ChatModel; a ChatModel is returned unchanged."""
    return model if isinstance(model, ChatModel) else _Adapted(model)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The data from which a provider's factory makes a model."""

    role: str
    name: str
    provider: Provider
    config: Config
    run: RunDirectory | None = None
    """The folder of the run, for models that write files into it."""

    @property
    def model(self) -> str:
        """The name without the provider."""
        return split_name(self.name)[1]

    @property
    def url(self) -> str:
        """The base URL that the config sets for this role; empty if none."""
        return self.config.role(self.role).url

    @property
    def key_name(self) -> str:
        """The environment variable with the key, if the config names one for this role; else empty."""
        return self.config.role(self.role).key_name

    @property
    def shared_url(self) -> str:
        """The base URL that the config sets for all roles; empty if none."""
        section, _, key = self.provider.url_setting.partition(".")
        return str(getattr(getattr(self.config, section), key)) if key else ""

    def base_url(self) -> str:
        """The base URL: the role's, else that of all roles, else the environment's, else the provider's. Raises
        UserError if none is set."""
        url = self.url or self.shared_url or os.environ.get(self.provider.url_variable, "") or self.provider.url
        if not url:
            raise UserError(f"{self.name}: {self.provider.url_hint}")
        return url


class ModelError(SkillOptError):
    """A call got no usable reply. Its task then has no score, which is not the same as the score 0. Secrets in the
    message are masked."""

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(redact(message))
        self.usage = usage
        """The token usage of a reply that was paid for but is invalid. None if no reply came."""


class TransientError(ModelError):
    """An error that may go away, so another try may help: status 429 or 5xx, a timeout, or a broken connection."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        reached: bool = True,
        overloaded: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, usage=usage)
        self.retry_after = retry_after
        self.throttled = overloaded
        """True if the endpoint rejected the call because there are too many calls (429, 503, 529). The item is then
        tried again; it is never set aside for this reason."""
        self.overloaded = overloaded or retry_after is not None
        """True if the call was throttled, or the endpoint asked to wait (Retry-After). Fewer calls in flight may then
        help."""
        self.reached = reached
        """False if no server answered at the address, or the name of the host does not resolve."""


class RefusedError(ModelError):
    """The endpoint refuses the content of this item: a content filter blocks it, or it is too long."""


class UnansweredError(RefusedError):
    """All tries of one request failed, while other requests were answered. The cause may be the item, or a partial
    outage of the endpoint. So the item is set aside only if it also fails when all failed items are tried again."""


class FormRefusedError(RefusedError):
    """The endpoint refuses this form of `response_format`; a different form may work."""


class FatalError(ModelError):
    """An error that another try would only repeat, such as status 401, 403 or 404, or 400 because of a mistake in our
    request. It ends the run at once."""
