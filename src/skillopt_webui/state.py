"""What a server holds: its settings, the index of runs, the commands it started, the worker."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from skillopt_webui.ask import Worker
from skillopt_webui.launch import Launches
from skillopt_webui.runs import RunIndex
from skillopt_webui.settings import Settings


@dataclass(frozen=True)
class Server:
    settings: Settings
    index: RunIndex
    launches: Launches
    worker: Worker


STATE: web.AppKey[Server] = web.AppKey("state", Server)
