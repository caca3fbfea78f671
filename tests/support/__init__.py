"""What several tests need: simulated runs, commands, a real loopback server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from skillopt.api import new_training
from skillopt.cli import main
from skillopt.config import Config
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, Usage
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import EditPool, Patch
from skillopt.record.events import Events, Listener
from skillopt.record.files import read_json, read_jsonl
from skillopt.record.journal import Journal
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.sim.server import SimServer
from skillopt.tasks import open_env
from skillopt.tasks.base import Score, Trajectory
from skillopt.training.callers import make_callers
from skillopt.training.context import Context
from skillopt.training.edits.aggregate import pool_edits, pool_of
from skillopt.training.session import Mode
from skillopt.training.trainer import Result

T = TypeVar("T")
TESTS = Path(__file__).resolve().parent.parent
REPO = TESTS.parent
SIM = REPO / "configs" / "sim" / "default.yaml"
SMALL = (
    "train.num_epochs=1",
    "train.batch_size=6",
    "optimizer.use_meta_skill=false",
    "env.options={rules: 6, train: 12, val: 12, test: 12}",
)
"""Overrides for a training of a few steps."""


def train_sim(
    out: Path,
    *overrides: str,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
    mode: Mode = "auto",
) -> Result:
    config = Config.load(SIM, [f"env.output_root={out}", *overrides])
    return asyncio.run(new_training(config, models=models, listeners=listeners, mode=mode).fit())


def train_short(out: Path, *overrides: str, **more: Any) -> Result:
    """As `train_sim`, with eight test items, which take most of the time; all other items are the same."""
    return train_sim(out, "env.options={rules: 20, train: 48, val: 40, test: 8}", *overrides, **more)


class Spy:
    """A simulated model that remembers what it was asked."""

    def __init__(self, name: str = "sim:world", options: SimOptions | None = None) -> None:
        self._model = SimulatedModel(name, options)
        self.name, self.endpoint, self.deterministic = name, "sim", self._model.deterministic
        self.requests: list[ChatRequest] = []

    def asked(self, stage: str) -> list[str]:
        """The user's message of every request of a stage, in order."""
        return [str(r.messages[-1]["content"]) for r in self.requests if r.schema and r.schema.name == stage]

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        return await self._model.chat(request)

    async def close(self) -> None:
        await self._model.close()


class Scripted:
    """An optimizer whose replies to each stage are given, one after the other; a text is sent as it is."""

    name = endpoint = "scripted"
    deterministic = True

    def __init__(self, **replies: list[Any]) -> None:
        self._replies = replies
        self.requests: list[ChatRequest] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        assert request.schema
        value = self._replies[request.schema.name].pop(0)
        text = value if isinstance(value, str) else json.dumps(value)
        return ChatReply(text=text, usage=Usage(prompt=1, completion=1))

    async def close(self) -> None:
        return


def context(*overrides: str, optimizer: Any = None) -> Context:
    """The first step of a run in the simulated world, without a folder."""
    config = Config.load(SIM, overrides)
    models: dict[str, ChatModel] = {"target": SimulatedModel("sim:world"), "optimizer": optimizer or Spy()}
    callers, _, _ = make_callers(config, Journal(":memory:"), models)
    run, events = RunDirectory(Path("unused")), Events(None)
    return Context(config=config, env=open_env(config), **callers, run=run, events=events, epoch=1, step=1, steps=4)


def trajectory(number: int, text: str = "task", *, hard: float = 0, feedback: str = "", **fields: Any) -> Trajectory:
    score = Score(hard=hard, soft=hard, feedback=feedback)
    row = {"skill_hash": "", "messages": [], "output": "out", "score": score, **fields}
    return Trajectory(id=f"t{number}", item_id=f"i{number}", input=text, **row)


def skillopt(*arguments: str, cwd: Path = REPO, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in this process: what it prints, its exit code, its variables and its folder are kept
    apart. A start of Python costs more than most of what a test wants to see."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: Any = 0
    with (
        patch.dict(os.environ, env or {}),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(list(arguments))
        except SystemExit as end:
            code = end.code
    printed, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["skillopt", *arguments], code, printed, told)


def skillopt_process(
    *arguments: str, cwd: Path = REPO, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, for what only a whole process can show."""
    command = [sys.executable, "-m", "skillopt.cli", *arguments]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


@contextlib.contextmanager
def loop_in_a_thread() -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """An event loop in a thread of its own; gives a function that runs a coroutine in it and waits for the result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def sim_server(options: SimOptions | None = None, api_key: str = "") -> Iterator[tuple[SimServer, str]]:
    """A real server on loopback in a thread of its own; gives it and its URL."""
    server = SimServer(options or SimOptions(), api_key)
    with loop_in_a_thread() as wait_for:
        runner, port = wait_for(server.start())
        try:
            yield server, f"http://127.0.0.1:{port}/v1"
        finally:
            wait_for(runner.cleanup())


def over_http(url: str) -> list[str]:
    """Overrides that send both roles to a server, whose replies are as steady as the simulated world's own."""
    models = [f"models.{role}_model=vllm:sim" for role in ("target", "optimizer")]
    return [f"hardware.vllm_url={url}", *models, "evaluation.gate=strict", "models.target_deterministic=true"]


def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is true, however slow the machine is; pytest-timeout ends a test that waits for ever."""
    while not (value := condition()):
        time.sleep(0.01)
    return value


@contextlib.contextmanager
def ends_within(seconds: int) -> Iterator[None]:
    """Fails a block that takes longer, also inside a regular expression. A generous guard against hanging."""
    import pytest  # not at the top: programs in bench/ use this package without it

    def fail(*_: object) -> None:
        pytest.fail(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def only_run(out: Path) -> RunDirectory:
    (root,) = [path for path in (out / "sim").iterdir() if path.is_dir()]
    return RunDirectory(root)


def without_telemetry(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_telemetry(v) for k, v in value.items() if k != "telemetry"}
    return [without_telemetry(v) for v in value] if isinstance(value, list) else value


def essence(run: RunDirectory) -> dict[str, Any]:
    """All that must not depend on timing, kills, executor or endpoint: every file of results, telemetry aside."""
    found: dict[str, Any] = {"patch_log": run.patch_log.path.read_bytes(), "best": run.best_skill.read_bytes()}
    for pattern in ("history.json", "steps/**/*", "skills/*", "slow_update/**/*", "meta_skill/**/*", "review/*"):
        for path in sorted(run.root.glob(pattern)):
            if path.is_file():
                found[str(path.relative_to(run.root))] = _content(path)
    return found


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return without_telemetry(read_json(path))
    return without_telemetry(read_jsonl(path)) if path.suffix == ".jsonl" else path.read_bytes()


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what differs, for a readable assertion."""
    return sorted(
        name
        for name in a.keys() | b.keys()
        if json.dumps(a.get(name), default=str) != json.dumps(b.get(name), default=str)
    )


def write_rows(folder: Path, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Rows of items as a split folder, also such that no benchmark would accept."""
    for split, rows in splits.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        (folder / split / "items.json").write_text(json.dumps(list(rows)))


def aggregate_locally(patches: Sequence[Patch]) -> EditPool:
    """The pool of a step without an optimizer: only nearly identical texts are merged."""
    edits = [edit for patch in patches for edit in patch.edits]
    return pool_of(pool_edits(edits), len(edits))
