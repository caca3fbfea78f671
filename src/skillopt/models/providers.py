"""Models of the providers that have no module here (`anthropic:`, `google:`, `mistral:`, `groq:` …), called through the
optional package pydantic-ai."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from skillopt.errors import MissingKey, UserError
from skillopt.keys import redact
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    FatalError,
    Message,
    ModelError,
    ModelSpec,
    RefusedError,
    TransientError,
    Usage,
)
from skillopt.models.http import ParameterRefused, classify, counted, refused_parameter
from skillopt.models.openai_chat import answer, check_url
from skillopt.models.transport import UnreadableError, read_body
from skillopt.provider_table import provider_of

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, UserContent
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

_DATA_URL = re.compile(r"data:([\w./+-]+);base64,(.*)\Z", re.DOTALL)
_UNREADABLE = (TypeError, ValueError, AttributeError, LookupError, AssertionError, RecursionError)
_OPTIONAL = {"temperature": "temperature", "seed": "seed", "thinking": "effort|thinking"}
_CACHE_WORDS = "cache_control|cachePoint"


class ProviderChat(ChatModel):
    """A model that pydantic-ai calls. The provider's SDK does not retry, because call.py does."""

    def __init__(self, name: str, provider: str, model: str, *, url: str = "", key_name: str = "") -> None:
        if importlib.util.find_spec("pydantic_ai") is None:
            raise UserError(f"{name}: needs a library that is not installed; pip install 'skillopt[providers]'")
        if url:
            check_url(name, url)
        self.name = name
        self._build = partial(_build, name, provider, model, url, key_name)
        self._model = self._build()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.endpoint = (url or self._model.base_url or provider).rstrip("/")
        self._left_out: set[str] = set()
        self._optional = _OPTIONAL | dict.fromkeys(provider_of(name).cache_settings, _CACHE_WORDS)

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

        loop = asyncio.get_running_loop()
        if self._closed or self._loop not in (None, loop):  # its connections belong to a loop that has ended
            self._model = self._build()
        self._loop, self._closed = loop, False
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
            if unreadable := _unreadable(error):
                raise TransientError(f"{self.endpoint}: {unreadable}", usage=Usage()) from None
            reached = not isinstance(error, exceptions.ModelConnectionError)
            raise TransientError(f"{self.endpoint}: {redact(str(error))[:500]}", reached=reached) from None
        except exceptions.UnexpectedModelBehavior as error:
            raise TransientError(f"{self.endpoint}: {redact(str(error))[:500]}", usage=Usage()) from None
        except exceptions.UserError as error:
            raise FatalError(f"{self.name}: {redact(str(error))[:500]}") from None
        except UnreadableError as error:
            raise TransientError(f"{self.endpoint}: {error}", usage=Usage()) from None
        except _UNREADABLE as error:  # the libraries do not check the form of an answer
            words = redact(f"{type(error).__name__}: {error}")[:500]
            text = f"{self.endpoint}: the reply is not a chat completion ({words})"
            raise TransientError(text, usage=Usage()) from error

    def _explained(self, error: Any, sent: Sequence[str]) -> ModelError | ParameterRefused:
        """Convert the library's error to the error that openai_chat.py would raise."""
        body = error.body if error.body is not None else str(error)
        for name in sent:
            if name in self._optional and any(
                refused_parameter(error.status_code, body, [word]) for word in self._optional[name].split("|")
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
        settings |= dict.fromkeys(provider_of(self.name).cache_settings if request.shared_prefix else (), True)
        present = {k: v for k, v in settings.items() if v is not None and k not in self._left_out}
        return cast("ModelSettings", present | {"max_retries": 0})

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
                written=min(counted(used.cache_write_tokens), counted(used.input_tokens)),
            ),
        )

    async def close(self) -> None:
        self._closed = True
        client = getattr(self._model, "client", None)
        close = getattr(client, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                await close()


def open_provider(spec: ModelSpec) -> ProviderChat:
    return ProviderChat(spec.name, spec.provider.prefix, spec.model, url=spec.url, key_name=spec.key_name)


def library_knows(provider: str) -> bool:
    """True if pydantic-ai knows a provider of this name, even if provider_table.py does not list it."""
    if importlib.util.find_spec("pydantic_ai") is None:
        return False
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except ImportError:  # a part of the library is missing; opening it says which
        return True
    except Exception:  # the library does not document the error for an unknown name
        return False
    return True


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
        provider_class = infer_provider_class(kind)
        return provider_class(**options, **_http_client(provider_class))

    try:
        return infer_model(f"{provider}:{model}", provider_factory=factory)
    except ImportError as error:
        raise UserError(f"{name}: {error}") from None
    except TypeError:
        settings_named = " and ".join(f"models.…_{'url' if key == 'base_url' else 'key_name'}" for key in options)
        raise UserError(f"{name}: this provider does not use {settings_named}; leave the setting empty") from None
    except (LibraryError, ValueError) as error:
        words = redact(str(error)).split(" or pass it via")[0]
        kind = MissingKey if "key" in words.lower() else UserError
        raise kind(f"{name}: {words} (in the environment or in .env)") from None


def _http_client(provider_class: type) -> dict[str, Any]:
    """The argument `http_client` for a provider's class, if the class has this parameter. This client limits the size
    of an answer, as transport.py does."""
    parameter = inspect.signature(provider_class).parameters.get("http_client")
    kind = re.search(r"(httpx2?)\.AsyncClient|HTTPClient", str(parameter.annotation)) if parameter else None
    if kind is None:
        return {}
    newest = "httpx2" if importlib.util.find_spec("httpx2") else "httpx"  # some SDKs accept only the older library
    library = importlib.import_module(kind[1] or newest)

    async def bound(response: Any) -> None:
        raw = response.stream
        try:
            body = await read_body(response.status_code, response.headers, raw)
        finally:
            await raw.aclose()
        response.headers.pop("Content-Encoding", None)
        response.stream = library.ByteStream(body)

    client = library.AsyncClient(
        timeout=library.Timeout(1200, connect=5),  # call.py sets the timeout
        limits=library.Limits(max_connections=None, max_keepalive_connections=100),
        headers={"Accept-Encoding": "gzip"},
        event_hooks={"response": [bound]},  # a transport of our own would turn off the environment's proxies
    )
    return {"http_client": client}


def _unreadable(error: BaseException | None) -> UnreadableError | None:
    """The UnreadableError among the causes of an SDK's error; None if there is none."""
    while error is not None and not isinstance(error, UnreadableError):
        error = error.__cause__ or error.__context__
    return error


def messages_from(messages: Sequence[Message]) -> list[ModelMessage]:
    """Convert messages of the OpenAI chat protocol, with their images, to messages of pydantic-ai."""
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
            text_parts = [TextPart(content=str(content))] if content or not calls else []
            out.append(ModelResponse(parts=[*text_parts, *calls]))
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
    """The request's tools and schema. The schema is sent in the provider's own form, or as a tool named after the
    stage."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    schema = request.schema
    functions = [tool["function"] for tool in request.tools]
    definitions = [
        ToolDefinition(
            name=each["name"], description=each.get("description", ""), parameters_json_schema=each["parameters"]
        )
        for each in functions
    ]
    if schema is None or schema.form != "schema":
        return ModelRequestParameters(function_tools=definitions)
    tool = ToolDefinition(
        name=schema.name, parameters_json_schema=schema.body, description="Give the reply.", kind="output"
    )
    wanted = OutputObjectDefinition(json_schema=schema.body, name=schema.name)
    return ModelRequestParameters(
        output_mode="auto", output_object=wanted, output_tools=[tool], allow_text_output=False
    )
