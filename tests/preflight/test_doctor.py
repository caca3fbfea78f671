"""The doctor finds what is wrong before a run does, and says how to fix it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skillopt.config import Config
from skillopt.models.base import ChatReply
from skillopt.preflight import doctor
from skillopt.preflight.doctor import Check, _warnings, examine
from skillopt.tasks import open_env
from skillopt.tasks.base import Env, Score, unknown_members
from support import SIM, SMALL, over_http, sim_server, skillopt, train_sim
from support.wire import completion, served


def checks(*overrides: str, offline: bool = True) -> dict[str, Check]:
    return {check.name: check for check in asyncio.run(examine(Config.load(SIM, overrides), offline=offline))}


def test_all_is_well_with_the_simulated_world(tmp_path: Path) -> None:
    found = checks(f"env.output_root={tmp_path}", offline=False)
    assert {check.status for check in found.values()} == {"pass"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "name", "status", "words"),
    [
        ("train.init_skill=missing.md", "data", "fail", "does not exist"),
        ("env.options={train: 0}", "data", "fail", "env.options.train"),
        ("notes.init_skill=", "initial skill", "warn", "notes.init_skill"),
        ("train.patience=99", "schedule", "warn", "can never end a run of 16 steps"),
        ("train.batch_size=48", "schedule", "pass", "4 steps in 4 epochs; auto would choose constant: 4 steps from a"),
        ("optimizer.lr_scheduler=auto", "schedule", "pass", "cosine: 16 steps from a 58-token skill; chosen by auto"),
        ("optimizer.use_meta_skill=false", "epoch boundary", "warn", "use_meta_skill=true"),
        ("models.optimizer_model=vllm:x", "optimizer price", "warn", "the price of vllm:x is unknown"),
        ("models.optimizer_model=vllm:x", "optimizer model", "fail", "no URL; set hardware.vllm_url"),
        ("evaluation.gate=strict", "gate", "pass", "strict"),
        (f"env.output_root={SIM}/runs", "output folder", "fail", "not writable"),
        ("budget.max_calls=3", "budget", "fail", "budget.max_calls is 3, and the plan expects "),
        ("budget.max_calls=1500", "budget", "warn", "and the plan expects "),
        ("models.target_model=sim:world?noise=0.1", "splits", "pass", "at 10% noise the smallest detectable gain: "),
    ],
)
def test_each_finding_has_its_words_and_its_fix(override: str, name: str, status: str, words: str) -> None:
    check = checks(override)[name]
    assert check.status == status
    assert words in f"{check.says} {check.fix}"
    assert check.fix or status == "pass"


class BadScorer(Env):
    """An env whose scorer is at fault."""

    def __init__(self, fault: str) -> None:
        self._env = open_env(Config.load(SIM))
        self.name, self._fault, self._calls = "bad", fault, 0

    def items(self, split: str) -> Any:
        return self._env.items(split)

    async def run(self, *args: Any) -> Any:
        raise NotImplementedError

    def score(self, item: Any, output: str) -> Score:
        self._calls += 1
        if self._fault == "raises" and not output:
            raise ZeroDivisionError("no words")
        if self._fault == "wavers":
            return Score(hard=self._calls % 2, soft=0)
        return Score(hard=0, soft=0)


class Misspelt(BadScorer):
    """Members that nothing reads."""

    baselines = ""

    def helper(self) -> None: ...

    def _private(self) -> None: ...


@pytest.mark.parametrize(
    ("env", "unknown"), [(Misspelt(""), {"baselines": "baseline", "helper": ""}), (open_env(Config.load(SIM)), {})]
)
def test_members_of_an_env_that_nothing_reads_are_named(env: Env, unknown: dict[str, str]) -> None:
    assert unknown_members(env) == unknown
    findings = [check for check in _warnings(env) if check.name == "env"]
    assert [check.says.split("; did you mean ")[1:] for check in findings] == [
        [f"'{near}'?"] if near else [] for near in unknown.values()
    ]


def test_doctor_names_a_misspelt_member_of_a_class_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from skillopt.sim.env import SimEnv\n\nclass Mine(SimEnv):\n    nosy = True\n    def _helper(self): ...\n"
    )
    (check,) = [each for name, each in checks(f"env.name={tmp_path}/mine.py:Mine").items() if name == "env"]
    assert check.status == "warn"
    assert "'nosy' is not a member of Env and is not used; did you mean 'noisy'?" in check.says


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("raises", "fail", "raises ZeroDivisionError on item 'train-000' for the output ''"),
        ("wavers", "fail", "two different scores for one output"),
        ("never right", "fail", "gives 0 to the items' own expected answers, such as '"),
    ],
)
def test_a_scorer_is_run_twice(fault: str, status: str, words: str) -> None:
    check = asyncio.run(doctor.scorer(BadScorer(fault)))
    assert check.status == status
    assert words in check.says


def test_endpoints_are_asked_once_each_and_measured() -> None:
    with sim_server() as (server, url):
        found = checks(*over_http(url), offline=False)
        assert server.requests.total() == 2
    assert found["target endpoint"].status == "pass"
    assert "with a JSON schema" in found["optimizer endpoint"].says


def test_offline_nobody_is_asked() -> None:
    with sim_server() as (server, url):
        found = checks(*over_http(url))
        assert server.requests.total() == 0
    assert "target endpoint" not in found


def test_a_wrong_key_a_dead_server_and_a_server_without_schemas_are_told_apart() -> None:
    with sim_server(api_key="right") as (_, url):
        assert "401: Incorrect API key" in checks(*over_http(url), offline=False)["target endpoint"].says
    dead = checks(*over_http("http://127.0.0.1:9/v1"), offline=False)["target endpoint"]
    assert (dead.status, "cannot connect" in dead.says) == ("fail", True)

    async def plain(http: web.Request) -> web.StreamResponse:
        if "response_format" in await http.json():
            return web.json_response({"error": {"message": "response_format is not supported"}}, status=400)
        return web.json_response(completion(ChatReply(text=json.dumps({"memory": "ready"}))))

    with served("/v1/chat/completions", plain) as url:
        check = checks(*over_http(f"{url}/v1"), offline=False)["optimizer endpoint"]
    assert check.status == "warn"
    assert "without JSON schemas" in check.says


def test_the_command_exits_with_1_where_a_check_fails(tmp_path: Path) -> None:
    url = over_http("http://127.0.0.1:9/v1")
    good = skillopt("doctor", "--config", str(SIM), "--offline", *url, f"env.output_root={tmp_path}")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "pass  scorer: same score twice and no error on 30 items" in good.stdout
    assert "warn  budget: no limit is set → set budget.max_usd" in good.stdout
    bad = skillopt("doctor", "--config", str(SIM), "--offline", "models.target_model=vllm:x")
    assert bad.returncode == 1
    assert "fail  target model: vllm:x: no URL" in bad.stdout


def test_training_shows_what_the_cheap_part_finds(tmp_path: Path) -> None:
    small = "env.options={rules: 4, train: 8, val: 4, test: 4}"
    done = skillopt("train", "--config", str(SIM), small, f"env.output_root={tmp_path}", "notes.schedule=")
    assert done.returncode == 0, done.stderr
    assert "warn  schedule: cosine, learning rate 4, 4 steps in 4 epochs; auto would choose constant: " in done.stdout
    assert "→ set optimizer.lr_scheduler=auto, or say in notes.schedule why not" in done.stdout


def test_a_schedule_that_fits_the_task_needs_no_note() -> None:
    assert checks("notes.schedule=")["schedule"].status == "pass"
    assert checks("notes.schedule=", "optimizer.lr_scheduler=auto")["schedule"].status == "pass"
    assert checks("notes.schedule=", "optimizer.lr_scheduler=constant")["schedule"].status == "warn"


def test_train_and_doctor_refuse_the_rate_that_auto_makes_constant_before_anything_is_written(tmp_path: Path) -> None:
    static = ("optimizer.lr_scheduler=auto", "optimizer.reject_decay=1", "train.num_epochs=1")
    for command in (("doctor", "--offline"), ("train",)):
        done = skillopt(*command, "--config", str(SIM), *static, f"env.output_root={tmp_path}")
        assert done.returncode == 2
        assert "the learning rate cannot change" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_strict_gate_over_a_target_that_varies_is_warned_of() -> None:
    check = checks("evaluation.gate=strict", "models.target_model=sim:world?noise=0.1")["gate"]
    assert (check.status, "set evaluation.gate to paired" in check.fix) == ("warn", True)


def test_the_output_folder_is_versioned_and_no_run_overwrites_another(tmp_path: Path) -> None:
    out = f"env.output_root={tmp_path}"
    before = checks(out, *SMALL)["output folder"].says
    run = train_sim(tmp_path, *SMALL).path
    assert f"the run's folder sim/DATE_{run.name[20:]} will be new" in before
    assert f"sim/{run.name} exists and will be continued" in checks(out, *SMALL)["output folder"].says
    assert run.name not in checks(out, "train.num_epochs=2")["output folder"].says
