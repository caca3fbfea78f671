"""The contract of a frozen model: one request in, one reply out, and errors that say what to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from skillopt.errors import SkillOptError
from skillopt.keys import redact

Message = dict[str, Any]
"""`{"role": "system" | "user" | "assistant" | "tool", "content": …}` as the OpenAI chat protocol has it."""


def content_text(content: Any) -> str:
    """A message's content as text; images are only named."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in content)
    return str(content or "")


Form = Literal["schema", "json", "text"]
"""How a reply's structure is asked for: by JSON schema, by JSON mode, or in words alone."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A JSON schema for the reply. Its name is the stage that asks, so that any server can distinguish stages."""

    name: str
    body: dict[str, Any]
    form: Form = "schema"


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
    tools: tuple[Mapping[str, Any], ...] = ()
    """`{"type": "function", "function": {name, description, parameters}}`, as the OpenAI chat protocol has them."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a call, or an agent's whole rollout, took: tokens, and dollars if known."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """How many of the prompt's tokens the endpoint had in its cache."""
    usd: float | None = None
    """What it cost, if the model reports it; None: it is computed from prices."""


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """What a model answered, and what that took."""

    text: str
    finish_reason: str = "stop"
    """`stop`, or `length` when the reply was cut off at max_tokens."""
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Tools that the model wants called: `{"id", "type": "function", "function": {name, arguments: JSON text}}`."""

    def message(self) -> Message:
        """The reply as the next message of the conversation."""
        calls = {"tool_calls": [dict(call) for call in self.tool_calls]} if self.tool_calls else {}
        return {"role": "assistant", "content": self.text, **calls}


@dataclass(frozen=True, kw_only=True)
class Left:
    """What an endpoint says is left of one of its limits."""

    limit: float
    remaining: float
    reset: float
    """Seconds until the whole limit is there again."""


@dataclass(frozen=True, kw_only=True)
class RateLimits:
    requests: Left | None = None
    tokens: Left | None = None


class ChatModel(Protocol):
    """A frozen model. `chat` raises the errors below and no others; it does not retry."""

    @property
    def name(self) -> str:
        """`provider:model`, as the user wrote it."""
        ...

    @property
    def endpoint(self) -> str:
        """What distinguishes this model from another of the same name: a URL, or the hash of the weights."""
        ...

    @property
    def deterministic(self) -> bool:
        """The same request always gives the same reply."""
        ...

    async def chat(self, request: ChatRequest) -> ChatReply: ...

    async def close(self) -> None: ...


class NoModel:
    """Takes the place of the optimizer in a run in which nothing calls it."""

    name = endpoint = "none"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        raise FatalError("this run has no optimizer model")

    async def close(self) -> None:
        return


class ModelError(SkillOptError):
    """A call that gave no reply. An error is never a wrong answer: it has no score. It repeats no secret."""

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


class TransientError(ModelError):
    """May go away by itself (429, 5xx, a timeout, a reset): worth another try."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, reached: bool = True, overloaded: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.throttled = overloaded
        """The endpoint said so (429, 503, 529), which says nothing of the item: it is asked again as long as that is
        allowed, and never set aside for it."""
        self.overloaded = overloaded or retry_after is not None
        """The endpoint has too much to do (429, 503): fewer calls at once may help."""
        self.reached = reached
        """False if there was no answer at all: no server there, or the name does not resolve."""


class RefusedError(ModelError):
    """The endpoint refuses this item because of its content (content filter, too long)."""


class FormRefusedError(RefusedError):
    """The endpoint does not take replies' structure in this form (`response_format`); another form may do."""


class FatalError(ModelError):
    """Trying again cannot help (401, 403, 404, a 400 caused by our request): ends the run at once."""
