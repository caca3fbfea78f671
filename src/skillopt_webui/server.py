"""The server: one page, its scripts and styles, and a JSON API."""

from __future__ import annotations

import asyncio
import mimetypes
from pathlib import Path
from typing import Any

from aiohttp import web

from skillopt.version import __version__
from skillopt_webui import api_configs, api_jobs, api_letters, api_measured, api_notes, api_runs
from skillopt_webui.answers import STATE, Server, answer, body, explain, text
from skillopt_webui.ask import Worker
from skillopt_webui.launch import Launches
from skillopt_webui.runs import RunIndex
from skillopt_webui.security import guard, has_session
from skillopt_webui.security import login as check_token
from skillopt_webui.settings import Settings

STATIC = Path(__file__).parent / "static"
_LARGEST = 1024 * 1024
"""Bytes of a request: a config is small."""

_AHEAD: web.AppKey[asyncio.Task[Any]] = web.AppKey("ahead", asyncio.Task)

routes = web.RouteTableDef()


@routes.get("/")
async def page(request: web.Request) -> web.Response:
    return _file("index.html")


@routes.get(r"/static/{path:[a-z0-9_/-]+\.(?:js|css|svg)}")
async def static(request: web.Request) -> web.Response:
    if request.match_info["path"] not in _NAMES:
        raise web.HTTPNotFound
    return _file(request.match_info["path"])


@routes.get("/api/session")
async def session(request: web.Request) -> web.Response:
    settings = request.app[STATE].settings
    known = has_session(request, settings)
    told = {"needs_token": not known, "version": __version__}
    return answer(request, told | ({"workspace": str(settings.workspace)} if known else {}))


@routes.post("/api/login")
async def login(request: web.Request) -> web.Response:
    return await check_token(request, request.app[STATE].settings, text(await body(request), "token"))


def _file(name: str) -> web.Response:
    path = STATIC / name
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {"Cache-Control": "no-cache"}
    return web.Response(body=path.read_bytes(), content_type=kind, charset="utf-8", headers=headers)


_NAMES = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*.*")}
"""What may be asked for; a name that is not here is not looked for."""


async def _read_ahead(app: web.Application) -> None:
    """The first look at thousands of runs reads thousands of files: begin before someone asks."""
    app[_AHEAD] = asyncio.create_task(asyncio.to_thread(app[STATE].index.table))


def make_app(settings: Settings) -> web.Application:
    app = web.Application(middlewares=[guard(settings), explain], client_max_size=_LARGEST)
    app[STATE] = Server(settings, RunIndex(settings), Launches(settings), Worker(settings))
    app.on_startup.append(_read_ahead)
    app.add_routes(routes)
    for module in (api_configs, api_runs, api_letters, api_jobs, api_measured, api_notes):
        app.add_routes(module.routes)
    return app
