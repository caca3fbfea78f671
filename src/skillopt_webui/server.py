"""The server: one page, its scripts and styles, and a JSON API."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import ClassVar

from aiohttp import web

from skillopt.record.base import Record
from skillopt.version import __version__
from skillopt_webui import (
    api_configs,
    api_harvest,
    api_jobs,
    api_letters,
    api_measured,
    api_notes,
    api_runs,
    api_trials,
)  # fmt: skip
from skillopt_webui.answers import STATE, Body, Server, answer, body, explain
from skillopt_webui.launch import Launches
from skillopt_webui.questions import Questions
from skillopt_webui.runs import RunIndex
from skillopt_webui.security import Door, guard
from skillopt_webui.settings import PageSettings

STATIC = Path(__file__).parent / "static"
_LARGEST = 1024 * 1024
"""The maximum number of bytes of a request. Even a long config is smaller."""

routes = web.RouteTableDef()


@routes.get("/")
async def page(request: web.Request) -> web.Response:
    return _file("index.html")


@routes.get(r"/static/{path:[a-z0-9_/-]+\.(?:js|css|svg)}")
async def static(request: web.Request) -> web.Response:
    if request.match_info["path"] not in _NAMES:
        raise web.HTTPNotFound
    return _file(request.match_info["path"])


class SessionInfo(Record):
    optional: ClassVar = frozenset({"workspace"})

    needs_token: bool
    version: str = __version__
    workspace: str | None = None


class LoginBody(Body):
    token: str = ""


@routes.get("/api/session")
async def session(request: web.Request) -> web.Response:
    admitted = await request.app[STATE].door.admits(request)
    workspace = str(request.app[STATE].settings.workspace) if admitted else None
    return answer(SessionInfo(needs_token=not admitted, workspace=workspace))


@routes.post("/api/login")
async def login(request: web.Request) -> web.Response:
    return await request.app[STATE].door.login(request, (await body(request, LoginBody)).token)


def _file(name: str) -> web.Response:
    path = STATIC / name
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {"Cache-Control": "no-cache"}
    return web.Response(body=path.read_bytes(), content_type=kind, charset="utf-8", headers=headers)


_NAMES = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*.*")}
"""The names of the files that the server sends; it refuses all other names."""


def make_app(settings: PageSettings) -> web.Application:
    door = Door(settings)
    app = web.Application(middlewares=[guard(settings, door), explain], client_max_size=_LARGEST)
    app[STATE] = Server(settings, RunIndex(settings), Launches(settings), Questions(settings), door)
    app.add_routes(routes)
    modules = (api_configs, api_runs, api_letters, api_jobs, api_measured, api_notes, api_trials, api_harvest)
    for module in modules:
        app.add_routes(module.routes)
    return app
