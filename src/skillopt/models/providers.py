"""Every other provider (`anthropic:`, `google:`, `bedrock:`, `mistral:`, `groq:` …) through pydantic-ai, an extra."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from skillopt.errors import MissingKey, UserError
from skillopt.keys import redact
from skillopt.models.base import (
    ChatReply,
    ChatRequest,
    FatalError,
    Message,
    ModelError,
    RefusedError,
    TransientError,
    Usage,
)
from skillopt.models.http import ParameterRefused, classify, counted, refused_parameter
from skillopt.models.openai_chat import answer, check_url

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, UserContent
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

_DATA_URL = re.compile(r"data:([\w./+-]+);base64,(.*)\Z", re.DOTALL)
_UNREADABLE = (TypeError, ValueError, AttributeError, LookupError, AssertionError, RecursionError)
_OPTIONAL = {"temperature": "temperature", "seed": "seed", "thinking": "effort|thinking"}


class ProviderChat:
    """A model behind any provider's own protocol. The SDK below does not retry: call.py does."""

    deterministic = False

    def __init__(self, name: str, provider: str, model: str, *, url: str = "", key_name: str = "") -> None:
        if importlib.util.find_spec("pydantic_ai") is None:
            raise UserError(f"{name}: needs a library that is not installed; pip install 'skillopt[providers]'")
        if url:
            check_url(name, url)
        self.name = name
        self._model = _build(name, provider, model, url, key_name)
        self._base_url = (url or self._model.base_url or provider).rstrip("/")
        self._left_out: set[str] = set()

    @property
    def endpoint(self) -> str:
        return self._base_url

    async def chat(self, request: ChatRequest) -> ChatReply:
        while True:
            settings = self._settings(request)
            try:
                return await self._ask(request, settings)
            except ParameterRefused as refused:
                self._left_out.add(refused.name)

    async def _ask(self, request: ChatRequest, settings: ModelSettings) -> ChatReply:
        from pydantic_ai import exceptions
        from pydantic_ai.direct import model_request

        messages, parameters = messages_from(request.messages), _parameters(request)
        try:
            response = await model_request(
                self._model, messages, model_settings=settings, model_request_parameters=parameters
            )
            return self._reply(response, tools=bool(request.tools))
        except exceptions.ModelHTTPError as error:
            raise self._explained(error, list(settings)) from None
        except exceptions.ContentFilterError as error:
            raise RefusedError(f"{self.endpoint}: {redact(str(error))[:500]}") from None
        except exceptions.ModelAPIError as error:
            reached = not isinstance(error, exceptions.ModelConnectionError)
            raise TransientError(f"{self.endpoint}: {redact(str(error))[:500]}", reached=reached) from None
        except exceptions.UnexpectedModelBehavior as error:
            raise TransientError(f"{self.endpoint}: {redact(str(error))[:500]}") from None
        except exceptions.UserError as error:
            raise FatalError(f"{self.name}: {redact(str(error))[:500]}") from None
        except _UNREADABLE as error:  # the libraries take for granted that an answer has the form that it should have
            words = redact(f"{type(error).__name__}: {error}")[:500]
            raise TransientError(f"{self.endpoint}: the reply is not a chat completion ({words})") from error

    def _explained(self, error: Any, sent: Sequence[str]) -> ModelError | ParameterRefused:
        """The endpoint's own words, as the same kind of error as on the fast client."""
        body = error.body if error.body is not None else str(error)
        for name in sent:
            if name in _OPTIONAL and any(
                refused_parameter(error.status_code, body, [word]) for word in _OPTIONAL[name].split("|")
            ):
                return ParameterRefused(name)
        headers = {key.title(): value for key, value in (error.headers or {}).items()}
        return classify(error.status_code, headers, body, f"{self.endpoint}: {error.status_code}", redact)

    def _settings(self, request: ChatRequest) -> ModelSettings:
        settings: dict[str, Any] = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "thinking": False if request.effort == "none" else request.effort or None,
        }
        kept = {k: v for k, v in settings.items() if v is not None and k not in self._left_out}
        return cast("ModelSettings", kept | {"max_retries": 0})

    def _reply(self, response: ModelResponse, *, tools: bool = False) -> ChatReply:
        from pydantic_ai.messages import TextPart, ToolCallPart

        if response.finish_reason == "content_filter":
            raise RefusedError(f"{self.endpoint}: the content filter refused this item")
        called = [part for part in response.parts if isinstance(part, ToolCallPart)]
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        used = response.usage
        return ChatReply(
            text=called[0].args_as_json_str() if called and not tools else answer(text),
            tool_calls=tuple(
                {
                    "id": part.tool_call_id,
                    "type": "function",
                    "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
                }
                for part in called
                if tools
            ),
            finish_reason="length" if response.finish_reason == "length" else "stop",
            usage=Usage(
                prompt=counted(used.input_tokens),
                completion=counted(used.output_tokens),
                cached=min(counted(used.cache_read_tokens), counted(used.input_tokens)),
            ),
        )

    async def close(self) -> None:
        client = getattr(self._model, "client", None)
        close = getattr(client, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                await close()


def _build(name: str, provider: str, model: str, url: str, key_name: str) -> Model:
    from pydantic_ai.exceptions import UserError as LibraryError
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import Provider, infer_provider_class

    options = {"base_url": url} if url else {}
    if key_name:
        key = os.environ.get(key_name, "").strip()
        if not key:
            raise MissingKey(f"{name}: no key; set {key_name} in the environment or in .env")
        options["api_key"] = key

    def factory(kind: str) -> Provider[Any]:
        return infer_provider_class(kind)(**options)

    try:
        return infer_model(f"{provider}:{model}", provider_factory=factory)
    except ImportError as error:
        raise UserError(f"{name}: {error}") from None
    except TypeError:
        given = " and ".join(f"models.…_{'url' if key == 'base_url' else 'key_name'}" for key in options)
        raise UserError(f"{name}: this provider does not take {given}; leave it empty") from None
    except (LibraryError, ValueError) as error:
        words = redact(str(error)).split(" or pass it via")[0]
        kind = MissingKey if "key" in words.lower() else UserError
        raise kind(f"{name}: {words} (in the environment or in .env)") from None


def messages_from(messages: Sequence[Message]) -> list[ModelMessage]:
    """Messages of the OpenAI chat protocol, images among them, in the library's own form."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    out: list[ModelMessage] = []
    names: dict[str, str] = {}
    part: Any
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "assistant":
            calls = [
                ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
                for call in message.get("tool_calls", ())
            ]
            names |= {call.tool_call_id: call.tool_name for call in calls}
            said = [TextPart(content=str(content))] if content or not calls else []
            out.append(ModelResponse(parts=[*said, *calls]))
            continue
        if role == "tool":
            called = str(message["tool_call_id"])
            part = ToolReturnPart(names.get(called, "tool"), str(content), called)
        elif role == "system":
            part = SystemPromptPart(content=str(content))
        else:
            part = UserPromptPart(content=_parts(content))
        if out and isinstance(out[-1], ModelRequest):
            out[-1] = ModelRequest(parts=[*out[-1].parts, part])
        else:
            out.append(ModelRequest(parts=[part]))
    return out


def _parts(content: Any) -> str | list[UserContent]:
    from pydantic_ai.messages import BinaryContent, ImageUrl

    if not isinstance(content, list):
        return str(content)
    out: list[UserContent] = []
    for part in content:
        if part.get("type") != "image_url":
            out.append(str(part.get("text", "")))
            continue
        url = str(part["image_url"]["url"])
        data = _DATA_URL.match(url)
        out.append(BinaryContent(data=base64.b64decode(data[2]), media_type=data[1]) if data else ImageUrl(url=url))
    return out


def _parameters(request: ChatRequest) -> ModelRequestParameters:
    """Tools; and the schema in whichever way the provider takes it: natively, or as a tool named after the stage."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    schema = request.schema
    functions = [tool["function"] for tool in request.tools]
    given = [
        ToolDefinition(
            name=each["name"], description=each.get("description", ""), parameters_json_schema=each["parameters"]
        )
        for each in functions
    ]
    if schema is None or schema.form != "schema":
        return ModelRequestParameters(function_tools=given)
    tool = ToolDefinition(
        name=schema.name, parameters_json_schema=schema.body, description="Give the reply.", kind="output"
    )
    wanted = OutputObjectDefinition(json_schema=schema.body, name=schema.name)
    return ModelRequestParameters(
        output_mode="auto", output_object=wanted, output_tools=[tool], allow_text_output=False
    )
