"""Functions that all handlers use: to read requests, to answer in JSON and to report errors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticSerializationError

from skillopt.errors import SkillOptError, UserError
from skillopt.keys import redact
from skillopt.record.base import Record
from skillopt.record.files import plain
from skillopt.record.run import Run
from skillopt.skill import PatchLogError
from skillopt_webui.launch import Launches
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.questions import Questions
from skillopt_webui.runs import RunIndex
from skillopt_webui.security import Door
from skillopt_webui.settings import PageSettings

RUN = r"/api/runs/{root:\d+}/{benchmark}/{run}"
"""The beginning of the address of every request about a run."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger("skillopt_webui")
_SMALL = 2_000
"""Answers of at most this many bytes are not compressed."""


@dataclass(frozen=True)
class Server:
    """The objects that all handlers of a server use."""

    settings: PageSettings
    index: RunIndex
    launches: Launches
    questions: Questions
    door: Door


STATE: web.AppKey[Server] = web.AppKey("state", Server)


def run_of(request: web.Request) -> Run:
    """The run that a request's address names."""
    return find_run(request.app[STATE].settings, run_name(request.match_info))


def run_name(args: Mapping[str, str]) -> str:
    """The id of a run, such as `0/sim/2026-11-17_22-40-05_seed42-1a2b3c4d`, from the parts of an address."""
    return "/".join(args[name] for name in ("root", "benchmark", "run"))


def answer(value: BaseModel) -> web.Response:
    """A response with a value as JSON, compressed if it is long. Secrets from environment variables are redacted."""
    body = redact(as_json(value)).encode("utf-8", "replace")
    response = web.Response(body=body, content_type="application/json", charset="utf-8")
    if len(body) > _SMALL:
        response.enable_compression()
    return response


def as_json(value: BaseModel) -> str:
    try:
        return value.model_dump_json()
    except PydanticSerializationError:  # text that is not valid Unicode
        return json.dumps(plain(value), ensure_ascii=False)


class Done(Record):
    """The answer to a successful request that has no result."""

    ok: bool = True


class Body(BaseModel):
    """The body of a request. A field that is null or missing gets its default."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


B = TypeVar("B", bound=Body)


@dataclass(frozen=True)
class Call(Generic[B]):
    """A request: the parts of its address, and its body."""

    server: Server
    args: Mapping[str, str]
    """The values in the path and in the query of the address."""
    wish: B

    @property
    def settings(self) -> PageSettings:
        return self.server.settings

    @property
    def run(self) -> Run:
        return find_run(self.settings, run_name(self.args))

    def number(self, name: str, default: str = "") -> int:
        return number(self.args.get(name, default))


class Routes(web.RouteTableDef):
    """The addresses of requests. Each address has a function that gets a `Call` and returns the answer. This function
    runs in a thread."""

    def read(self, path: str) -> Callable[[Callable[[Call[Body]], BaseModel]], None]:
        return self._serve("GET", path, Body)

    def change(self, path: str, model: type[B]) -> Callable[[Callable[[Call[B]], BaseModel]], None]:
        return self._serve("POST", path, model)

    def _serve(self, method: str, path: str, model: type[B]) -> Callable[[Callable[[Call[B]], BaseModel]], None]:
        def register(make: Callable[[Call[B]], BaseModel]) -> None:
            async def handler(request: web.Request) -> web.Response:
                wish = model() if method == "GET" else await body(request, model)
                call = Call(request.app[STATE], {**request.query, **request.match_info}, wish)
                return answer(await asyncio.to_thread(make, call))

            self.route(method, path)(handler)

        return register


async def body(request: web.Request, model: type[B]) -> B:
    """Read the body of a request. Raises UserError if a field has a wrong value."""
    try:
        return model.model_validate_json(await request.read())
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            complaint = '{"error": "the body of the request must be a JSON object"}'
            raise web.HTTPBadRequest(text=complaint, content_type="application/json") from None
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{field}: {first['msg'].removeprefix('Value error, ')}") from None


def number(text: str) -> int:
    """Read a number from a path or query. Raises NotThereError for any other text."""
    if not text.isdecimal() or len(text) > 9:
        raise NotThereError(f"'{text[:40]}' is not a number")
    return int(text)


@web.middleware
async def explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a failed request with an error. The message of an error of SkillOpt, such as a damaged file, is sent;
    details of other errors are not."""
    try:
        with run_of(request).files.as_written() if "run" in request.match_info else nullcontext():
            return await handler(request)
    except NotThereError as error:
        return _complaint(str(error), 404)
    except (SkillOptError, PatchLogError) as error:
        return _complaint(str(error), 400)
    except FileNotFoundError as error:
        return _complaint(f"{error.filename}: is not written yet, or was deleted", 404)
    except web.HTTPException:
        raise
    except (ConnectionResetError, TimeoutError):
        raise
    except Exception:
        _log.exception("%s %s failed", request.method, request.path)
        return _complaint("an unexpected error in the server; see its terminal for details", 500)


def _complaint(what: str, status: int) -> web.Response:
    return web.json_response({"error": redact(what)}, status=status)
