"""Killed at any moment, a run goes on and ends as if nothing had happened; no received reply is paid for twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest

from skillopt.errors import Stopped, UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.record.files import read_json
from skillopt.record.state import State
from skillopt.sim.model import SimOptions
from support import REPO, SMALL, differing, essence, only_run, over_http, sim_server, skillopt, train_sim, until

SHORT = ("train.num_epochs=2", "env.options={rules: 8, train: 12, val: 10, test: 10}", "train.batch_size=6")
WIDTH = 4 + 4  # workers and analysts


def start(out: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "skillopt.cli", "train", "--config", "configs/sim/default.yaml"]
    command += [f"env.output_root={out}", "hardware.workers=4", "gradient.analyst_workers=4", *overrides]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def kill_after(process: subprocess.Popen[bytes], out: Path, events: int) -> bool:
    """SIGKILL once so many more bytes of events are there, so that kills fall all over the run; False if it ended."""
    logs = list(out.glob("sim/*/events.jsonl"))
    goal = (size_of(logs[0]) if logs else 0) + events
    while process.poll() is None:
        logs = list(out.glob("sim/*/events.jsonl"))
        if logs and size_of(logs[0]) >= goal:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.002)
    return False


@pytest.mark.parametrize(
    ("times", "a_time", "size"), [(1, 2500, SHORT), pytest.param(20, 1500, (), marks=pytest.mark.chaos)]
)
def test_kills_change_nothing_and_repeat_only_what_was_in_flight(
    tmp_path: Path, times: int, a_time: int, size: tuple[str, ...]
) -> None:
    weather = SimOptions(duds=0.35, latency=0.01, optimizer_latency=0.03, jitter=1)
    draw = random.Random(5)
    with sim_server(weather) as (server, url):
        calm = train_sim(tmp_path / "calm", *over_http(url), *size)
        server.requests.clear()
        for _ in range(times):
            process = start(tmp_path / "rough", *over_http(url), *size)
            assert kill_after(process, tmp_path / "rough", draw.randint(0, a_time))
            time.sleep(draw.random() * 0.05)
        done = start(tmp_path / "rough", *over_http(url), *size)
        _, errors = done.communicate()
    assert done.returncode == 0, errors.decode()
    assert differing(essence(RunDirectory(calm.path)), essence(only_run(tmp_path / "rough"))) == []
    repeats = sum(count - 1 for count in server.requests.values())
    assert repeats <= times * WIDTH


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_in_good_order_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    with sim_server(SimOptions(duds=0.35, latency=0.05)) as (server, url):
        process = start(tmp_path, *over_http(url), *SHORT)
        until(lambda: server.requests.total() >= 40)
        process.send_signal(number)
        _, errors = process.communicate()
        assert process.returncode == 130
        assert b"run the same command again to continue" in errors
        paid = server.requests.total()
        assert read_json(only_run(tmp_path).state)["status"] == "stopped"
        assert only_run(tmp_path).report.is_file()
        train_sim(tmp_path, *over_http(url), *SHORT)
        assert max(server.requests.values()) == 1, "a reply that had been received was asked for again"
        assert server.requests.total() > paid


def test_a_budget_stops_the_run_and_a_larger_one_ends_it_as_without_limit(tmp_path: Path) -> None:
    free = train_sim(tmp_path / "free", *SHORT)
    with pytest.raises(Stopped, match="max_calls"):
        train_sim(tmp_path / "tight", *SHORT, "budget.max_calls=60")
    run = only_run(tmp_path / "tight")
    assert sum(read_json(run.summary)["calls"][role] for role in ("target", "optimizer")) <= 60
    resumed = train_sim(tmp_path / "tight", *SHORT, "budget.max_calls=2000")
    assert resumed.path == run.root
    assert differing(essence(RunDirectory(free.path)), essence(run)) == []


def test_a_changed_config_is_another_run(tmp_path: Path) -> None:
    first = train_sim(tmp_path, *SMALL)
    second = train_sim(tmp_path, *SMALL, "optimizer.learning_rate=3")
    assert first.path != second.path


def test_workers_and_budget_do_not_make_another_run(tmp_path: Path) -> None:
    first = train_sim(tmp_path, *SMALL)
    second = train_sim(tmp_path, *SMALL, "hardware.workers=2", "budget.max_calls=5000")
    assert first.path == second.path


def test_fresh_begins_another_run_and_the_next_command_goes_on_with_that(tmp_path: Path) -> None:
    first = train_sim(tmp_path, *SMALL)
    fresh = train_sim(tmp_path, *SMALL, mode="fresh")
    assert first.path != fresh.path
    assert train_sim(tmp_path, *SMALL).path == fresh.path


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run to resume"):
        train_sim(tmp_path, mode="resume")


@pytest.mark.parametrize("mode", ["auto", "resume"])
@pytest.mark.parametrize("pin", ["method", "prompts"])
def test_a_run_does_not_continue_by_another_method_or_under_other_prompts(
    tmp_path: Path, pin: str, mode: Literal["auto", "resume"]
) -> None:
    with pytest.raises(Stopped):
        train_sim(tmp_path, *SHORT, "budget.max_calls=60")
    run = only_run(tmp_path)
    state = State.read(run.state)
    state.pins |= {pin: "another", "skillopt": "0.1.9"}
    state.write(run.state)
    before = {path: path.read_bytes() for path in run.root.rglob("*.json*")}
    with pytest.raises(UserError, match=r"SkillOpt 0\.1\.9.*another method.*pip install skillopt==0\.1\.9.*--fresh"):
        train_sim(tmp_path, *SHORT, mode=mode)
    assert {path: path.read_bytes() for path in before} == before
    seen: list[Event] = []
    fresh = train_sim(tmp_path, *SHORT, mode="fresh", listeners=[seen.append])
    assert [event["replies"] for event in seen if event.kind == "replies_reused"] == [60]
    assert fresh.path != run.root


def test_a_second_trainer_on_the_same_run_is_refused_and_named(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path, *SMALL).path)
    with run.held(), pytest.raises(UserError, match=f"process {os.getpid()}"):
        train_sim(tmp_path, *SMALL)
    train_sim(tmp_path, *SMALL)


def test_no_key_appears_in_any_file_or_message_of_a_run(tmp_path: Path) -> None:
    key = "sk-very-secret-marker-123"
    config = ["--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}", *SMALL]
    with sim_server(SimOptions(), api_key=key) as (_, url):
        done = skillopt("train", *config, *over_http(url), env={"VLLM_API_KEY": key})
        refused = skillopt("train", *config, *over_http(url), "train.seed=2", env={"VLLM_API_KEY": key + "x"})
    assert done.returncode == 0, done.stderr
    assert refused.returncode == 2
    everything = done.stdout + done.stderr + refused.stdout + refused.stderr
    assert key not in everything
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path
