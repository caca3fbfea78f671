"""What a new user does in the first hour, as they do it: it works at the first try, or says what to do."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

import skillopt as library
from skillopt.config import Config
from skillopt.models.base import ChatReply, ChatRequest, TransientError
from skillopt.record.files import read_jsonl
from skillopt.tasks import open_env
from skillopt.view.console import Lines
from support import sim_server, skillopt
from support.api import SPLITS, TASKS, small
from support.wire import served


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
    open_env(elsewhere).close()


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


# A scorer or an agent that is broken


SCORER = """
def score(item, output):
    return float(output.strip() == item.{field}) if output else 0.0
"""


def own_scorer(folder: Path, field: str) -> list[str]:
    (folder / "scorer.py").write_text(SCORER.format(field=field))
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    models = {"target_model": "sim:world?noise=0.05", "optimizer_model": "sim:world"}
    env = {"data": "tasks.jsonl", "scoring": "scorer.py:score", "benchmark": "own", "output_root": str(folder / "out")}
    tree = {"env": env, "models": models, "train": {"num_epochs": 1, "batch_size": 12}}
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    return ["train", "--config", str(folder / "config.yaml")]


def paid(folder: Path) -> int:
    """Calls of all runs, by their journals."""
    journals = (folder / "out" / "own").glob("*/journal.sqlite")
    rows = (sqlite3.connect(file).execute("SELECT sum(calls) FROM totals").fetchone()[0] for file in journals)
    return sum(row or 0 for row in rows)


def test_a_scorer_that_fails_on_real_replies_stops_after_two_of_them_and_they_are_used_again(tmp_path: Path) -> None:
    done = skillopt(*own_scorer(tmp_path, "wanted"))
    assert done.returncode == 3
    assert "has no field 'wanted'" in done.stderr
    assert "run the same command again (paid replies are used again)" in done.stderr
    assert paid(tmp_path) == 2
    done = skillopt(*own_scorer(tmp_path, "answer"))
    assert done.returncode == 0, done.stderr
    assert "2 replies from " in done.stdout
    assert "are used again" in done.stdout


@pytest.mark.slow
def test_replies_are_reused_when_only_the_scorer_changed(tmp_path: Path) -> None:
    """A whole run, and the same with a scorer that says the same in other words: nothing is paid for again."""
    assert skillopt(*own_scorer(tmp_path, "answer")).returncode == 0
    before = paid(tmp_path)
    command = own_scorer(tmp_path, "answers[0]")
    done = skillopt(*command)
    assert done.returncode == 0, done.stderr
    assert f"{before} replies from " in done.stdout
    assert paid(tmp_path) == before
    assert len(list((tmp_path / "out" / "own").glob("*_seed42-*"))) == 2
    skillopt(*command, "train.seed=7")
    assert paid(tmp_path) > before  # another seed is another experiment


def test_a_scorer_that_fails_on_anything_is_refused_before_a_call(tmp_path: Path) -> None:
    command = own_scorer(tmp_path, "answer")
    (tmp_path / "scorer.py").write_text("def score(item, output):\n    return output.grade\n")
    done = skillopt(*command)
    assert done.returncode == 2
    assert "scorer.py, line 2" in done.stderr
    assert "nothing was paid for yet" in done.stderr
    assert paid(tmp_path) == 0


def test_an_agent_that_always_raises_is_asked_for_two_tasks_and_no_more(tmp_path: Path) -> None:
    asked: set[str] = set()

    def broken(item: Any, skill: Any, model: Any) -> str:
        asked.add(item.id)
        return str(item.colour)

    with pytest.raises(library.Stopped, match=r"first 2 tasks gave no score.*env\.agent: AttributeError.*colour"):
        library.train(tasks=SPLITS, agent=broken, optimizer_model="sim:world", output_root=str(tmp_path))
    assert len(asked) == 2


# An endpoint that turns calls away


class Storm:
    """Turns every call of one item away eight times, while it answers all others."""

    name = endpoint = "storm"
    deterministic = True

    def __init__(self, word: str, times: int = 8, retry_after: float | None = 3.0) -> None:
        self._word, self._left, self._wait = word, times, retry_after

    async def chat(self, request: ChatRequest) -> ChatReply:
        if self._word in str(request.messages[-1]["content"]) and self._left:
            self._left -= 1
            raise TransientError("429: too many requests", retry_after=self._wait, overloaded=True)
        return ChatReply(text="no")

    async def close(self) -> None:
        return


@pytest.mark.parametrize("retry_after", [3.0, None, 0.0])
def test_an_item_is_never_set_aside_for_a_429_and_the_wait_is_said(
    tmp_path: Path, virtual_time: Any, retry_after: float | None
) -> None:
    told: list[Any] = []
    storm = Storm("Case 30.", retry_after=retry_after)
    given = small(tmp_path, models={"target": storm, "optimizer_model": "sim:world"}, callbacks=[told.append])
    given = {key: value for key, value in given.items() if not key.endswith("_model")}
    result = library.train(**given)
    assert result.summary["set_aside"] == {}
    assert result.summary["status"] == "finished"
    if retry_after == 0:
        return  # over before anybody could be shown it
    lines = [Lines()(event) for event in told if event.kind == "throttled"]
    assert lines
    assert re.match(
        r"Throttled: storm rejects calls \(429: too many requests\); 1 calls wait, the next .* \d rejected so far",
        str(lines[0]),
    )
    assert not [row for row in read_jsonl(result.path / "events.jsonl") if row["kind"] == "throttled"]


def test_an_agents_own_rate_limit_is_waited_for(tmp_path: Path, virtual_time: Any) -> None:
    class RateLimitError(Exception):
        pass

    left = {"times": 6}

    async def own(item: Any, skill: Any, model: Any) -> str:
        if "Case 3." in item.question and left["times"]:
            left["times"] -= 1
            raise RateLimitError("Error code: 429")
        return "no"

    result = library.train(
        tasks=SPLITS, agent=own, optimizer_model="sim:world", num_epochs=1, output_root=str(tmp_path)
    )
    assert (left["times"], result.summary["set_aside"]) == (0, {})


def test_an_item_that_is_set_aside_is_named_on_the_terminal(tmp_path: Path) -> None:
    def picky(item: Any, output: str) -> float:
        return float(item.answer == output) if "Case 30." not in item.question else float("nan")

    told: list[Any] = []
    result = library.train(**small(tmp_path, scorer=picky, callbacks=[told.append]))
    (gone,) = result.summary["set_aside"]
    lines = [Lines()(event) for event in told if event.kind == "set_aside"]
    assert [line for line in lines if str(line).startswith(f"Set aside for every skill: {gone} (")]


def test_a_program_that_shows_progress_ends_as_the_command_line_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = library.train(**small(tmp_path, progress=True))
    shown = capsys.readouterr().out
    assert result.verdict.split(" (")[0] in " ".join(shown.split())
    assert "best_skill.md" in shown


def test_report_begins_with_the_verdict(tmp_path: Path) -> None:
    result = library.train(**small(tmp_path))
    assert skillopt("report", str(result.path)).stdout.splitlines()[0] == result.verdict


def test_more_epochs_without_an_optimizer_say_what_needs_one(tmp_path: Path) -> None:
    rows = "\n".join(f"{task['question']},{task['answer']}" for task in TASKS)
    (tmp_path / "mine.csv").write_text(f"question,answer\n{rows}\n")
    made = skillopt("init", "mine", "--from", "mine.csv", "--target_model", "sim:world", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    keys = ("gradient.analysts=[exemplar]", "train.num_epochs=2")
    done = skillopt("train", "--config", "mine/config.yaml", *keys, cwd=tmp_path, env={"OPENAI_API_KEY": ""})
    assert done.returncode == 2
    assert "only guidance and notes between epochs need an optimizer" in done.stderr
    assert "train.num_epochs=1" in done.stderr
    assert not (tmp_path / "outputs").exists()
