"""What a new user does in the first hour, as they do it: it works at the first try, or says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

import skillopt as library
from skillopt.config import Config
from skillopt.envs import open_env
from skillopt.envs.base import close_env
from support import sim_server, skillopt
from test_api import TASKS, small
from wire import served


def test_a_judge_works_in_the_simulated_world(tmp_path: Path) -> None:
    result = library.train(**small(tmp_path, env={"scoring": "judge"}, num_epochs=1))
    assert result.summary["status"] == "finished"
    assert (result.scores["best_val"] or 0) > (result.scores["initial_val"] or 0)
    told = (result.path / "steps/step_0001/trajectories.jsonl").read_text()
    assert "the answer should have" in told


def test_eval_takes_the_best_skill_of_the_configs_run_and_names_its_option(tmp_path: Path) -> None:
    result = library.train(**small(tmp_path))
    config = str(result.path / "config.yaml")
    done = skillopt("eval", "--config", config, "--skill", "best", "--split", "val")
    assert done.returncode == 0, done.stderr
    assert f"hard {result.scores['best_val']:.2f}" in done.stdout
    done = skillopt("eval", "--config", config, "--skill", "bets")
    assert done.returncode == 2
    assert "--skill: 'bets' does not exist" in done.stderr
    assert "init_skill" not in done.stderr


def test_a_workspace_is_found_next_to_the_config_like_every_other_path(tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "mine"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "price.txt").write_text("3")
    rows = "".join(f'{{"question": "{task["question"]}", "answer": "3"}}\n' for task in TASKS)
    (folder / "tasks.jsonl").write_text(rows)
    env = {"data": "tasks.jsonl", "command": ["cat", "price.txt"], "agent_options": {"workspace": "files"}}
    (folder / "config.yaml").write_text(yaml.safe_dump({"env": {**env, "output_root": str(tmp_path / "out")}}))
    monkeypatch.chdir(tmp_path)
    assert library.evaluate("mine/config.yaml", library.Skill(""), split="val")["score"] == 1
    here, elsewhere = Config.load("mine/config.yaml"), None
    monkeypatch.chdir(folder)
    elsewhere = Config.load("config.yaml")
    assert here.identity() == elsewhere.identity()
    close_env(open_env(elsewhere))


def over(url: str, tmp_path: Path) -> list[str]:
    models = ["models.target_model=vllm:sim", "models.optimizer_model=sim:world", f"hardware.vllm_url={url}"]
    return ["train", "--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}", *models]


def test_an_url_without_v1_says_what_to_try(tmp_path: Path) -> None:
    with sim_server() as (_, url):
        bare = url.removesuffix("/v1")
        done = skillopt(*over(bare, tmp_path))
    assert done.returncode == 2
    assert f"{bare}: 404: Not Found (model 'sim'); is the URL complete? Try {bare}/v1" in done.stderr.replace("\n", " ")


PAGE = "<!DOCTYPE html><html><head><title>Sign in &amp; go</title><style>p {}</style></head><body>…</body></html>"


@pytest.mark.parametrize(("status", "code"), [(200, 2), (403, 2)])
def test_a_web_page_in_place_of_a_reply_is_quoted_by_its_title(status: int, code: int, tmp_path: Path) -> None:
    async def page(http: web.Request) -> web.StreamResponse:
        return web.Response(text=PAGE, content_type="text/html", status=status)

    with served("/chat/completions", page) as url:
        done = skillopt(*over(url, tmp_path))
    assert done.returncode == code, done.stderr
    assert 'a web page, "Sign in & go"' in done.stderr.replace("\n", " ")
    assert "<" not in done.stderr
