"""What the web page's tests share: a real server process over a workspace of its own, and a plain client."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillopt.record.directory import RunDirectory
from support import REPO, until

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
    """A server process, and requests to it."""

    workspace: Path
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Ui:
        command = [sys.executable, "-m", "skillopt_webui.app", "--port", str(self.port), *self.arguments]
        self._process = subprocess.Popen(
            command, cwd=self.workspace, stdout=subprocess.PIPE, text=True, env={**os.environ, **self.env}
        )
        assert self._process.stdout
        first = self._process.stdout.readline()
        found = re.search(r":(\d+)/", first)
        assert found, first
        self.port = int(found[1])
        return self

    def stop(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def memory(self) -> float:
        """Megabytes of resident memory."""
        assert self._process
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

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
