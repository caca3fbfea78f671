"""The contract of a frozen model: one request in, one reply out, and errors that say what to do with them."""

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
    """A message's content as text; images are only named."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in content)
    return str(content or "")


Form = Literal["schema", "json", "text"]
"""The ways to request a structured reply: by JSON schema, by JSON mode, or only in words."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A JSON schema for the reply. Its name is the stage that asks, so any server can distinguish stages."""

    name: str
    body: JsonObject
    form: Form = "schema"

    def response_format(self) -> ResponseFormat:
        """The schema in the form of the OpenAI chat protocol: a strict schema requires every property."""
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
    """One request to a model, as any provider can be asked it."""

    messages: tuple[Message, ...]
    temperature: float | None = None
    """None leaves it to the endpoint."""
    max_tokens: int | None = None
    schema: Schema | None = None
    seed: int | None = None
    """A fresh sample of a noisy model has its own seed; None for a deterministic one."""
    effort: str = ""
    """The reasoning effort; empty leaves it to the endpoint."""
    tools: tuple[ToolDefinition, ...] = ()
    shared_prefix: bool = False
    """Do other requests begin with the same tools and system prompt, so that caching them pays?"""

    def prefix(self) -> str:
        """The text that requests with a shared prefix begin with."""
        first = self.messages[0] if self.messages else {"role": ""}
        system = content_text(first.get("content")) if first["role"] == "system" else ""
        return json.dumps([system, *self.tools]) if self.shared_prefix and (system or self.tools) else ""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of a call, or of an agent's whole rollout: tokens, and dollars if known."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """How many of the prompt's tokens the endpoint had in its cache."""
    written: int = 0
    """How many of the prompt's tokens the endpoint wrote into its cache, which some charge extra for."""
    usd: float | None = None
    """The cost that the model reports; None: the cost is computed from prices."""


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """A model's reply and its usage."""

    text: str
    finish_reason: str = "stop"
    """`length` when the reply was cut off at max_tokens, `tool_calls` when tools are to be called, else `stop`. Every
    other word of an endpoint becomes one of these (`known_reason`)."""
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[ToolCall, ...] = ()
    """Tools that the model wants called."""
    seconds: float = 0.0
    """How long the endpoint took, without waits and failed tries; measured by SkillOpt."""

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
    """Why a reply ended, in one of our words; an endpoint may write anything there."""
    return _REASONS.get(reason.lower(), "stop")


class ChatModel:
    """A frozen model. Subclasses set `name` and `endpoint` and have `chat`; every other member has a default.

    `chat` raises TransientError, RefusedError or FatalError (skillopt.models.base) and nothing else. It does
    not retry.
    """

    name: str = ""
    """`provider:model`, as the user wrote it."""
    endpoint: str = ""
    """Distinguishes this model from others of the same name: its URL, or the hash of its weights."""
    deterministic: bool = False
    """The same request always gives the same reply."""
    max_concurrency: int | None = None
    """Calls at once that it can handle; None: any number."""
    human_paced: bool = False
    """Does a person write the replies? That may take hours: only the end of the run ends a call."""
    ends_calls: bool = False
    """Does the model itself end a call that takes too long, with TransientError?"""
    waiting: Mapping[int, Path] = {}
    """Requests that wait for a person's reply: the number of each, and its folder."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        """The reply to one request."""
        raise NotImplementedError(f"{type(self).__name__} has no method chat")

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
    """A user's object as a ChatModel: one that has a method `chat` is enough."""
    return model if isinstance(model, ChatModel) else _Adapted(model)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The arguments of a provider's factory, which makes a model."""

    role: str
    name: str
    provider: Provider
    config: Config
    run: RunDirectory | None = None
    """The run's folder, for models that write files."""

    @property
    def model(self) -> str:
        """The name without the provider."""
        return split_name(self.name)[1]

    @property
    def url(self) -> str:
        """The role's own base URL; empty if the config names none."""
        return self.config.role(self.role).url

    @property
    def key_name(self) -> str:
        """The variable of the key that the config names; empty if it names none."""
        return self.config.role(self.role).key_name

    @property
    def shared_url(self) -> str:
        """The base URL that the config has for all roles."""
        section, _, key = self.provider.url_setting.partition(".")
        return str(getattr(getattr(self.config, section), key)) if key else ""

    def base_url(self) -> str:
        """The role's URL; else the URL of the config, the environment or the provider, in this order."""
        url = self.url or self.shared_url or os.environ.get(self.provider.url_variable, "") or self.provider.url
        if not url:
            raise UserError(f"{self.name}: {self.provider.url_hint}")
        return url


class ModelError(SkillOptError):
    """A call without a usable reply. It is not a wrong answer, so it has no score. Its message holds no secret."""

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(redact(message))
        self.usage = usage
        """The usage of a reply that cannot be used but was paid for. None if no reply came."""


class TransientError(ModelError):
    """An error that may go away by itself (429, 5xx, a timeout, a reset): another try may help."""

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
        """The endpoint rejects calls (429, 503, 529). The item is not at fault: it is asked again as long as that is
        allowed, and never set aside for it."""
        self.overloaded = overloaded or retry_after is not None
        """The endpoint has too much to do (429, 503): fewer calls at once may help."""
        self.reached = reached
        """False if nothing answered: there is no server at the address, or its name does not resolve."""


class RefusedError(ModelError):
    """The endpoint refuses this item because of its content (content filter, too long)."""


class UnansweredError(RefusedError):
    """All tries of one request failed, while others were answered. The item may be the cause, or bad luck in a partial
    outage: it is set aside only if it also fails in further rounds."""


class FormRefusedError(RefusedError):
    """The endpoint refuses this form of `response_format`; another form may work."""


class FatalError(ModelError):
    """Trying again cannot help (401, 403, 404, a 400 caused by our request): ends the run at once."""
