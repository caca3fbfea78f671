"""The types of the OpenAI chat protocol: messages, tools, and bodies of requests."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import GetPydanticSchema, JsonValue
from pydantic_core import core_schema

JsonObject = dict[str, JsonValue]
AS_GIVEN = GetPydanticSchema(lambda _source, _handler: core_schema.dict_schema(core_schema.str_schema()))
"""An annotation for a dict in a record. With it, the record keeps every key of the dict, also keys that an endpoint or
agent added."""


class FunctionCall(TypedDict):
    name: str
    arguments: str
    """The arguments as JSON text."""


class ToolCall(TypedDict):
    """A model's call of a tool, in the format of the OpenAI chat protocol."""

    id: str
    type: str
    function: FunctionCall


class ImageAddress(TypedDict):
    url: str


class ContentPart(TypedDict, total=False):
    """A part of a message: a text or an image."""

    type: str
    text: str
    image_url: ImageAddress


class Message(TypedDict, total=False):
    """One message in the format of the OpenAI chat protocol. Fields that an endpoint or an agent adds stay in the
    message."""

    role: str
    """The message's role: `system`, `user`, `assistant` or `tool`."""
    content: str | list[ContentPart] | None
    name: str
    tool_calls: list[ToolCall]
    tool_call_id: str
    skill: str
    """The hash of the skill. In stored trajectories, it replaces the skill's text."""


class FunctionDefinition(TypedDict):
    name: str
    description: str
    parameters: JsonObject


class ToolDefinition(TypedDict):
    """The description of a function that the target may call, in the format of the OpenAI chat protocol."""

    type: str
    function: FunctionDefinition


StoredMessage = Annotated[Message, AS_GIVEN]
StoredTool = Annotated[ToolDefinition, AS_GIVEN]


class NamedSchema(TypedDict, total=False):
    name: str
    schema: JsonObject
    strict: bool


class ResponseFormat(TypedDict, total=False):
    type: str
    json_schema: NamedSchema


class CompletionBody(TypedDict, total=False):
    """The body of a request for a chat completion, in the format of the OpenAI chat protocol."""

    model: str
    messages: list[Message]
    temperature: float
    max_tokens: int
    max_completion_tokens: int
    seed: int
    reasoning_effort: str
    tools: list[ToolDefinition]
    response_format: ResponseFormat
