"""What the web page's tests share: a real server over a workspace of its own, and a plain client."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiohttp import web

from skillopt.dotenv import load_dotenv
from skillopt.record.directory import RunDirectory
from skillopt_webui.app import token_from_environment
from skillopt_webui.server import make_app
from skillopt_webui.settings import PageSettings, make_settings
from support import REPO, loop_in_a_thread, until

SLOW = {"models.target_model": "sim:world?latency=1.2", "models.optimizer_model": "sim:world?duds=0.2&opposites=1"}
"""A simulated run that takes long enough to be watched, with conflicts."""


def make_workspace(folder: Path) -> Path:
    """The repository's simulated config and data in a folder of their own."""
    (folder / "outputs").mkdir(parents=True)
    for name in ("configs/sim", "data/sim"):
        shutil.copytree(REPO / name, folder / name)
    return folder


@dataclass
class Ui:
    """A server in a thread of this process, as `skillopt ui` starts it, and requests to it."""

    workspace: Path
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Ui:
        self._open.enter_context(patch.dict(os.environ, self.env))
        self._open.enter_context(contextlib.chdir(self.workspace))
        load_dotenv(Path(".env"))
        given: dict[str, Any] = dict(zip(self.arguments[::2], self.arguments[1::2], strict=True))
        configs = [Path(given["--configs"])] if "--configs" in given else None
        host, token = given.get("--host", "127.0.0.1"), token_from_environment()
        settings = make_settings(workspace=Path.cwd(), configs=configs, host=host, port=self.port, token=token)
        self.port = self._open.enter_context(_served(settings))
        return self

    def stop(self) -> None:
        self._open.close()

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and answer; without headers, those that the page sends."""
        given = {"X-SkillOpt": "1"} if headers is None else headers
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path.lstrip("/"), data=data, headers=given)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, _parsed(response.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())

    def get(self, path: str) -> Any:
        status, answer = self.ask(path)
        assert status == 200, answer
        return answer

    def post(self, path: str, body: Any) -> Any:
        status, answer = self.ask(path, body)
        assert status == 200, answer
        return answer

    def launch(self, *lines: str) -> str:
        """Start a simulated run and wait until it has a folder; returns its id."""
        yaml = self.post("/api/configs/load", {"path": "configs/sim/default.yaml"})["yaml"]
        changes = dict(line.split("=", 1) for line in lines)
        yaml = self.post("/api/configs/check", {"yaml": yaml, "set": changes})["yaml"]
        launch = self.post("/api/launch", {"yaml": yaml})
        until(lambda: self.get(f"/api/launches/{launch['id']}")["run"])
        return str(self.get(f"/api/launches/{launch['id']}")["run"])

    def run(self, name: str) -> RunDirectory:
        return RunDirectory(self.workspace / "outputs" / name.split("/", 1)[1])


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


@contextlib.contextmanager
def _served(settings: PageSettings) -> Iterator[int]:
    """Serves until the end of the block; gives the port."""
    with loop_in_a_thread() as wait_for, contextlib.closing(socket.socket()) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        port: int = listening.getsockname()[1]
        runner = web.AppRunner(make_app(replace(settings, port=port)), shutdown_timeout=1)
        wait_for(runner.setup())
        wait_for(web.SockSite(runner, listening).start())
        try:
            yield port
        finally:
            wait_for(runner.cleanup())


@contextlib.contextmanager
def serving(workspace: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Ui]:
    ui = Ui(workspace, list(arguments), env or {}).start()
    try:
        yield ui
    finally:
        ui.stop()
        for lock in workspace.glob("outputs/*/*/run.lock"):  # a run that a failed test left behind
            from skillopt_webui.alive import holder

            if pid := holder(lock.parent):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
