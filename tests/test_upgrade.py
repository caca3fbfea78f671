"""Runs of an earlier version: found by the same command, read by every command, and never mixed up unasked."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from skillopt.config import Config
from skillopt.config.config import defaults
from skillopt.config.identity import carried_over, chosen, recorded_defaults
from skillopt.errors import UserError
from skillopt.loop.trainer import TrainingLoop
from skillopt.report.html import write_report
from skillopt.run.files import read_json
from skillopt.run.repair import find_damage
from skillopt.version import __version__
from support import REPO, only_run, skillopt, train_sim

SETTINGS = (
    "train.num_epochs=1",
    "train.batch_size=4",
    "models.optimizer_model=sim:world",
    "env.options={rules: 4, train: 8, val: 5, test: 5}",
)
"""What the stored runs were trained with, by 0.1.0; one was stopped by its budget after the first of two steps."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(REPO / "tests" / "data" / "runs-0.1.0.tar.gz") as stored:
        stored.extractall(tmp_path, filter="data")
    return tmp_path


def test_an_unfinished_run_of_an_earlier_version_is_found_and_not_continued_by_another_method_unasked(
    old: Path,
) -> None:
    run = only_run(old / "stopped")
    before = {path: path.read_bytes() for path in run.root.rglob("*") if path.suffix in {".json", ".jsonl", ".md"}}
    with pytest.raises(UserError, match=r"begun by SkillOpt 0\.1\.0.*pip install skillopt==0\.1\.0.*--resume.*--fresh"):
        train_sim(old / "stopped", *SETTINGS)
    assert {path: path.read_bytes() for path in before} == before


def test_asked_to_resume_it_continues_from_its_last_step_under_its_own_settings(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingLoop, "_over", lambda self: "")  # all its validation tasks are right already
    run = only_run(old / "stopped")
    first, paid = read_json(run.history), read_json(run.summary)["calls"]
    result = train_sim(old / "stopped", *SETTINGS, mode="resume")
    assert result.path == run.root
    assert result.summary["status"] == "finished"
    assert result.history[0] == first[0]
    assert [record["step"] for record in result.history] == [1, 2]
    assert result.summary["calls"]["target"] > paid["target"]
    recorded = read_json(run.config_json)
    assert recorded["evaluation.gate"] == "strict", "the default of 0.1.0, under which the run was begun"
    assert recorded["gradient.minibatch_size"] == 8
    write_report(run)
    assert "Trained by SkillOpt 0.1.0; from step 2: SkillOpt" in run.report.read_text()
    assert find_damage(run) == []
    assert train_sim(old / "stopped", *SETTINGS).path == run.root, "it is found again afterwards"


def test_a_fresh_run_in_its_place_uses_the_replies_that_it_has_paid_for(old: Path) -> None:
    seen = []
    result = train_sim(old / "stopped", *SETTINGS, mode="fresh", listeners=[seen.append])
    (reused,) = [event.data for event in seen if event.kind == "replies_reused"]
    assert reused["replies"] == 20
    assert result.path.name != Path(reused["path"]).name
    assert result.summary["calls"]["from_journal"] >= 5, "the initial skill's validation, at least"


def test_a_finished_run_of_an_earlier_version_is_the_answer_to_the_same_command(old: Path) -> None:
    run = only_run(old / "finished")
    calls = read_json(run.summary)["calls"]
    result = train_sim(old / "finished", *SETTINGS)
    assert result.path == run.root
    assert result.summary["calls"] == calls
    assert train_sim(old / "finished", *SETTINGS, "train.seed=43").path != run.root
    assert train_sim(old / "finished", *SETTINGS, "evaluation.metric=soft").path != run.root


@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_every_command_that_reads_a_run_reads_one_of_an_earlier_version(name: str, old: Path) -> None:
    run = only_run(old / name)
    for command in (
        ["verify"],
        ["blame"],
        ["blame", "--line", "9"],
        ["blame", "--trace", "0001-001"],
        ["report"],
        ["diff"],
        ["review"],
        ["ablate", "--max-calls", "500"],
        ["export", "--to", str(old / "exported")],
    ):
        done = skillopt(command[0], str(run.root), *command[1:])
        assert done.returncode == 0, (command, done.stderr)
    shutil.rmtree(old / "exported")
    skill = ["--skill", str(run.best_skill), f"env.output_root={old / 'evals'}"]
    done = skillopt("eval", "--config", "configs/sim/default.yaml", *skill, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert run.root.name in skillopt("runs", str(old / name)).stdout


def test_a_key_that_is_new_or_a_default_that_changed_makes_no_other_run() -> None:
    now, then = Config().flat(), recorded_defaults()["0.1.0"]
    grown = {**defaults(), "train.later_key": True}
    assert chosen({**now, "train.later_key": True}, grown) == chosen(now, defaults()) == {}
    values = carried_over(now, then, "0.1.0", defaults())
    assert values is not None
    assert values["evaluation.gate"] == "strict"
    assert carried_over({**now, "train.batch_size": 7}, then, "0.1.0", defaults()) is None
    assert carried_over(now, {**then, "train.batch_size": 7}, "0.1.0", defaults()) is None
    assert carried_over({**now, "train.batch_size": 7}, {**then, "train.batch_size": 7}, "0.1.0", defaults()) == values
    assert carried_over(now, {**then, "train.gone_key": 3}, "0.1.0", defaults()) is None


def test_the_defaults_of_every_released_version_are_recorded() -> None:
    released = re.findall(r"^## (\d[\d.]*)", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert set(released) - {__version__} <= set(recorded_defaults())
    for version, table in recorded_defaults().items():
        assert version != __version__ or table == json.loads(json.dumps(defaults())), "a released table never changes"


def test_a_key_that_is_gone_is_accepted_where_it_says_nothing_and_refused_with_the_way_out() -> None:
    Config.parse({"budget": {"target": {"max_usd": None, "max_calls": None}, "max_usd": 1}})
    with pytest.raises(UserError, match=r"budget\.optimizer: is no longer a key; set budget\.max_usd"):
        Config.parse({"budget": {"optimizer": {"max_usd": 3}}})
