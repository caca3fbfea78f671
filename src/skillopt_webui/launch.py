"""Starts commands in separate processes. Each start is recorded on disk, so that a restarted server finds the
command."""

from __future__ import annotations

import asyncio
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
from typing import Literal, TypeVar

from pydantic import BaseModel

from skillopt.errors import UserError
from skillopt.record.directory import ANNOUNCED_IN, make_folder
from skillopt.record.files import write_atomic, write_json
from skillopt.record.run import read_record
from skillopt.skill.folder import open_regular
from skillopt_webui.alive import holder
from skillopt_webui.places import NotThereError, measured_id, run_id
from skillopt_webui.settings import PageSettings

Kind = Literal["train", "eval", "compare"]
_VARIABLES = {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "TERM": "dumb"}
_ID = re.compile(r"[0-9]{10,}-[0-9a-f]{8}\Z")
_LOG_END = 4000
"""The maximum number of characters that are shown from the end of a log."""
_KEPT = 100
"""The number of newest commands whose records are kept."""


class LaunchRecord(BaseModel):
    """launch.json: the command that was started."""

    kind: Kind = "train"
    title: str = ""
    started: float = 0.0
    pid: int
    run: str | None = None
    """The run that the command works on."""


class WorkRecord(BaseModel):
    """work.json: the folder in which a command works."""

    folder: str
    finished: bool = False
    """True if the work was already finished before the command began."""


class ExitRecord(BaseModel):
    """exit.json: the exit code of a command that has ended."""

    code: int


class LaunchStatus(LaunchRecord):
    """A command on the page: its state, its run or its result, and the end of its log."""

    id: str
    state: Literal["running", "ended", "killed"]
    code: int | None
    begun: bool
    already: bool
    written: str | None
    """The id of the measurement that the command wrote; None if it wrote none."""
    log: str


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Launch:
    """The folder of a command. Its files: config.yaml, launch.json, log.txt, lock; work.json as soon as the command has
    begun; exit.json as soon as it has ended."""

    folder: Path

    def log(self) -> str:
        try:
            with open_regular(self.folder / "log.txt") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _LOG_END))
                return file.read().decode("utf-8", "replace")[-_LOG_END:]
        except OSError:
            return ""

    def running(self) -> bool:
        """True if the command still holds its lock."""
        try:
            with open_regular(self.folder / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # missing, or not a regular file
            pass
        return False

    def worked_on_by(self, pid: int) -> bool:
        """True if the process `pid` runs the command. The number in launch.json does not prove that, because the file
        may come from a different machine."""
        try:
            return str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

    def record(self) -> LaunchRecord:
        return read_record(LaunchRecord, self.folder / "launch.json")

    def status(self, settings: PageSettings) -> LaunchStatus:
        running, record, work = self.running(), self.record(), self._optional(WorkRecord, "work.json")
        ending, written = self._optional(ExitRecord, "exit.json"), None
        run = record.run
        if work and record.kind == "train":
            run = run_id(settings, Path(work.folder))
        elif work and ending and ending.code == 0:
            written = measured_id(settings, Path(work.folder))
        return LaunchStatus(
            **{**dict(record), "run": run},
            id=self.folder.name,
            state="ended" if ending else "running" if running else "killed",
            code=ending.code if ending else None,
            begun=bool(work),
            already=bool(work and work.finished),
            written=written,
            log=self.log(),
        )

    def _optional(self, model: type[Model], name: str) -> Model | None:
        path = self.folder / name
        return read_record(model, path) if path.exists() else None


class Launches:
    """Starts commands, and finds all started commands, even if the server was restarted since then."""

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._folder = settings.records / "launches"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: Kind, title: str, config: str, arguments: list[str], run: str | None = None) -> Launch:
        """Start `skillopt KIND --config FILE ARGUMENTS`. FILE is the command's own copy of `config`."""
        folder = self._folder / f"{int(time.time() * 1000)}-{secrets.token_hex(4)}"
        make_folder(self._folder.parent, private=True)  # private, because other users must not read logs and configs
        folder.mkdir(parents=True)
        write_atomic(folder / "config.yaml", config)
        # -P: do not import Python files from the folder
        command = [sys.executable, "-P", "-m", "skillopt_webui.runner", str(folder)]
        command += [kind, "--config", str(folder / "config.yaml"), *arguments]
        with (folder / "log.txt").open("wb") as log, (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the child process inherits the lock and keeps it until it ends
            child = subprocess.Popen(  # noqa: S603
                command,
                cwd=self._settings.workspace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                env={**os.environ, **_VARIABLES, ANNOUNCED_IN: str(folder / "work.json")},
            )
        record = LaunchRecord(kind=kind, title=title, started=time.time(), pid=child.pid, run=run)
        write_json(folder / "launch.json", record)
        self._children[folder.name] = child
        self._forget_old()
        return Launch(folder)

    def get(self, name: str) -> Launch:
        self.reap()
        if not _ID.match(name) or not (self._folder / name / "launch.json").is_file():
            raise NotThereError(f"there is no command '{name}'")
        return Launch(self._folder / name)

    def all(self) -> list[Launch]:
        """All started commands, the newest first."""
        self.reap()
        records = sorted(self._folder.glob("*/launch.json"), reverse=True) if self._folder.is_dir() else []
        return [Launch(path.parent) for path in records if _ID.match(path.parent.name)]

    def reap(self) -> None:
        """Wait for child processes that have ended; otherwise they would stay as zombies."""
        self._children = {name: child for name, child in self._children.items() if child.poll() is None}

    def stop(self, launch: Launch) -> None:
        """End a command that is not a training. Replies that were paid for stay in the command's journal."""
        pid, child = launch.record().pid, self._children.get(launch.folder.name)
        if launch.running() and (child.pid == pid if child else launch.worked_on_by(pid)):
            _signal(pid, signal.SIGTERM)

    def _forget_old(self) -> None:
        for launch in self.all()[_KEPT:]:
            if not launch.running():
                for path in launch.folder.iterdir():
                    path.unlink()
                launch.folder.rmdir()


def pause(run: Path) -> None:
    """Stop a run as Ctrl-C does: no new call starts, the replies to calls in flight are kept, and the run can be
    resumed."""
    _signal(_worker(run), signal.SIGTERM)


async def stop_now(run: Path) -> None:
    """End a run's process immediately. Replies to calls in flight are lost; all replies that have arrived are kept."""
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
        raise UserError("no process is working on this run, so there is nothing to stop")
    return pid


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise UserError(f"process {pid} belongs to another user; stop it in the terminal that started it") from None


def quoted(value: object) -> str:
    """A value in quotes, for an override. Overrides are read as YAML."""
    return json.dumps(value)
