"""Commands in separate processes. What was started is recorded on disk, so that a new server finds it again."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skillopt.errors import UserError
from skillopt.run.directory import make_folder
from skillopt.run.files import read_json, write_atomic, write_json
from skillopt_webui.alive import holder
from skillopt_webui.files import Cache
from skillopt_webui.places import NotThereError, inside, measured_id, run_id
from skillopt_webui.settings import Settings

Kind = Literal["train", "eval", "compare"]
_ID = re.compile(r"[0-9]{10,}-[0-9a-f]{8}\Z")
_RUN_LINE = re.compile(r"^Run: (.+) \((?:new run|resumed|already finished)", re.MULTILINE)
_RESULT_LINE = re.compile(r"^Written: (.+)$", re.MULTILINE)
_LOG_END = 64 * 1024
"""Bytes of a log that are looked at and shown."""
_KEPT = 500
"""Records of ended commands that are kept."""
_records = Cache(2 * _KEPT)


@dataclass(frozen=True)
class Launch:
    """One command's folder: config.yaml, launch.json, log.txt, lock and, at the end, exit.json."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    def log(self) -> str:
        path = self.folder / "log.txt"
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_END))
            return file.read().decode("utf-8", "replace")

    def running(self) -> bool:
        """Holds its lock; one that has only just begun may not have taken it yet."""
        if (self.folder / "exit.json").exists():
            return False
        try:
            with (self.folder / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return time.time() - self.record()["started"] < 20 and _lives(self.record()["pid"])

    def record(self) -> dict[str, Any]:
        known: dict[str, Any] = read_json(self.folder / "launch.json")
        return known

    def unfinished(self) -> bool:
        """A measurement that is at work or that failed. What ended well is among the runs and results."""
        if self._known("launch.json").get("kind") == "train":
            return False
        return bool(self._known("exit.json").get("code", -1) != 0)

    def called(self, wanted: str) -> bool:
        return wanted.casefold() in str(self._known("launch.json").get("title", "")).casefold()

    def _known(self, name: str) -> dict[str, Any]:
        return _records.get(name, self.folder / name, read_json) or {}

    def status(self, settings: Settings) -> dict[str, Any]:
        """What the page shows of it: its state, its run or its result, and the end of its log."""
        record, log = self.record(), self.log()
        ended = self.folder / "exit.json"
        code = read_json(ended)["code"] if ended.exists() else None
        state = "running" if self.running() else "ended" if code is not None else "killed"
        found = _RUN_LINE.search(log)
        return {
            "id": self.id,
            "kind": record["kind"],
            "title": record["title"],
            "started": record["started"],
            "state": state,
            "code": code,
            "already": bool(found and "already finished" in found[0]),
            "run": run_id(settings, settings.workspace / found[1]) if found else record.get("run"),
            "result": _result(settings, log),
            "written": _written(settings, log),
            "log": log[-4000:],
        }


def _result(settings: Settings, log: str) -> dict[str, Any] | None:
    """The JSON file that a command says it wrote, where it lies under the output folders."""
    found = _RESULT_LINE.findall(log)
    path = settings.workspace / found[-1] if found else None
    if path is None or path.suffix != ".json" or not inside(path, settings.outputs) or not path.is_file():
        return None
    result: dict[str, Any] = read_json(path)
    return result


def _written(settings: Settings, log: str) -> str | None:
    """Where the result lies, as the page names it."""
    found = _RESULT_LINE.findall(log)
    return measured_id(settings, settings.workspace / found[-1]) if found else None


class Launches:
    """Starts commands and finds those that were started before."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.records / "launches"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: Kind, title: str, config: str, arguments: list[str], run: str | None = None) -> Launch:
        """`arguments` follow `skillopt KIND --config <its own copy of the config>`."""
        folder = self._folder / f"{int(time.time() * 1000)}-{secrets.token_hex(4)}"
        make_folder(self._folder.parent, private=True)  # logs and configs are of no use to other users
        folder.mkdir(parents=True)
        write_atomic(folder / "config.yaml", config)
        command = [sys.executable, "-m", "skillopt_webui.runner", str(folder)]
        command += [kind, "--config", str(folder / "config.yaml"), *arguments]
        with (folder / "log.txt").open("wb") as log:
            child = subprocess.Popen(  # noqa: S603
                command,
                cwd=self._settings.workspace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "TERM": "dumb"},
            )
        record = {"kind": kind, "title": title, "started": time.time(), "pid": child.pid, "run": run}
        write_json(folder / "launch.json", record | {"command": command[1:]})
        self._children[folder.name] = child
        self._forget_old()
        return Launch(folder)

    def get(self, name: str) -> Launch:
        self.reap()
        if not _ID.match(name) or not (self._folder / name / "launch.json").is_file():
            raise NotThereError(f"no command '{name}'")
        return Launch(self._folder / name)

    def all(self) -> list[Launch]:
        """The newest first."""
        self.reap()
        found = sorted(self._folder.glob("*/launch.json"), reverse=True) if self._folder.is_dir() else []
        return [Launch(path.parent) for path in found if _ID.match(path.parent.name)]

    def reap(self) -> None:
        """Ended children are waited for, or they would stay as zombies."""
        self._children = {name: child for name, child in self._children.items() if child.poll() is None}

    def stop(self, launch: Launch) -> None:
        """End a command that is not a training; what it has paid for is in its journal."""
        if launch.running():
            _signal(launch.record()["pid"], signal.SIGTERM)

    def _forget_old(self) -> None:
        for launch in self.all()[_KEPT:]:
            if not launch.running():
                for path in launch.folder.iterdir():
                    path.unlink()
                launch.folder.rmdir()


def pause(run: Path) -> None:
    """What Ctrl-C does: nothing new starts, what is in flight is kept, the process ends, and the run can be resumed."""
    _signal(_worker(run), signal.SIGTERM)


async def stop_now(run: Path) -> None:
    """Leave at once. Replies in flight are lost; everything before them is kept."""
    pid = _worker(run)
    for number, patience in ((signal.SIGTERM, 0.3), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        if holder(run) != pid:
            return
        _signal(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and holder(run) == pid:  # noqa: ASYNC110 - another process's end
            await asyncio.sleep(0.05)


def _worker(run: Path) -> int:
    pid = holder(run)
    if pid is None:
        raise UserError("nobody is working on this run; it can be resumed")
    return pid


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise UserError(f"process {pid} belongs to someone else; stop it where it was started") from None


def _lives(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def quoted(value: object) -> str:
    """A value in an override, as YAML reads it."""
    return json.dumps(value)
