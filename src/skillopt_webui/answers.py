"""What all handlers share: reading a request, answering in JSON, and error messages."""

from __future__ import annotations

import gzip
import json
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from skillopt.errors import SkillOptError, UserError
from skillopt.keys import redact
from skillopt.run.directory import RunDirectory
from skillopt.skill import PatchLogError
from skillopt_webui.ask import Worker
from skillopt_webui.launch import Launches
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.runs import RunIndex
from skillopt_webui.settings import Settings

RUN = r"/api/runs/{root:\d+}/{benchmark}/{run}"
"""How the address of a run begins."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger("skillopt_webui")
_SMALL = 2_000
"""Answers below this many bytes are not worth packing."""


@dataclass(frozen=True)
class Server:
    """What a server holds."""

    settings: Settings
    index: RunIndex
    launches: Launches
    worker: Worker


STATE: web.AppKey[Server] = web.AppKey("state", Server)


def run_of(request: web.Request) -> RunDirectory:
    """The run that an address names."""
    parts = (request.match_info[name] for name in ("root", "benchmark", "run"))
    return find_run(request.app[STATE].settings, "/".join(parts))


def answer(request: web.Request, value: Any) -> web.Response:
    """JSON, packed where it is long. Keys of the environment never leave, whatever file they got into."""
    body = redact(_as_json(value)).encode("utf-8", "replace")
    headers = {}
    if len(body) > _SMALL and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, 3)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type="application/json", charset="utf-8", headers=headers)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except (ValueError, TypeError):  # numbers that JSON does not have, or keys that are no texts: as words
        return json.dumps(_worded(value), ensure_ascii=False, default=str)


def _worded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _worded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_worded(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


async def body(request: web.Request) -> dict[str, Any]:
    try:
        given = await request.json()
    except (ValueError, LookupError, RecursionError):  # no JSON, in an unknown encoding, nested without end
        given = None
    if not isinstance(given, dict):
        raise web.HTTPBadRequest(text='{"error": "the request has no JSON object"}', content_type="application/json")
    return given


def text(given: dict[str, Any], name: str, default: str = "") -> str:
    value = given.get(name, default)
    return value if isinstance(value, str) else default


def table(given: dict[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name) or {}
    if not isinstance(value, dict):
        raise UserError(f"{name}: must be a JSON object")
    return value


def number(given: str) -> int:
    """A number from a path or query; anything else is not there."""
    if not given.isdecimal() or len(given) > 9:
        raise NotThereError(f"'{given[:40]}' is not a number")
    return int(given)


@web.middleware
async def explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """SkillOpt errors with their message; others without details."""
    try:
        return await handler(request)
    except NotThereError as error:
        return _complaint(str(error), 404)
    except (SkillOptError, PatchLogError) as error:
        return _complaint(str(error), 400)
    except FileNotFoundError as error:
        return _complaint(f"not written yet, or gone: {error.filename}", 404)
    except web.HTTPException:
        raise
    except (ConnectionResetError, TimeoutError):
        raise
    except Exception:
        _log.exception("%s %s failed", request.method, request.path)
        return _complaint("something went wrong in the server; its terminal says what", 500)


def _complaint(what: str, status: int) -> web.Response:
    return web.json_response({"error": redact(what)}, status=status)
