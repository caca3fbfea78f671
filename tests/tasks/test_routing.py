"""A library's routing: which skill is loaded for which request, which descriptions overlap, and training one of them
against the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from skillopt.config import EnvConfig
from skillopt.record.routing import confusion
from skillopt.record.trajectory import Trajectory
from skillopt.skill.package import read_package
from skillopt.tasks.trigger import TriggerEnv
from support import REPO
from support.checking import Done, here

EXAMPLE = REPO / "examples" / "routing"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("skills", "requests.jsonl", "config.yaml"):
        copy = shutil.copytree if (EXAMPLE / name).is_dir() else shutil.copy
        copy(EXAMPLE / name, tmp_path / name)
    return tmp_path


def routed(work: Path, *arguments: str) -> Done:
    return here(work, "route", "skills", "-c", "config.yaml", *arguments)


def env_of(work: Path, **options: str) -> TriggerEnv:
    data = str(work / "requests.jsonl")
    return TriggerEnv(EnvConfig(name="trigger", data=data, options={"skills": str(work / "skills"), **options}))


def trajectory(expected: str, output: str) -> Trajectory:
    score = {"hard": 0, "soft": 0}
    row = {"id": "t", "item_id": "i", "skill_hash": "", "input": "?", "messages": [], "score": score}
    return Trajectory.model_validate({**row, "answers": [expected], "output": output})


def test_the_matrix_has_a_row_for_what_requests_are_for_and_a_column_for_what_was_loaded(work: Path) -> None:
    done = routed(work)
    assert done.returncode == 0, done.stderr
    table = [line.split() for line in done.stdout.splitlines() if line.startswith(("request for", "refunds  "))]
    assert table == [
        ["request", "for", "\\", "loaded", "calendar", "invoices", "refunds", "travel", "none"],
        ["refunds", "·", "2", "3", "·", "·"],
    ]
    found = json.loads(routed(work, "--json").stdout)
    assert found["score"] == pytest.approx(9 / 21)
    counts = {row["expected"]: row["loaded"] for row in found["confusion"]["rows"]}
    assert counts["refunds"] == {"invoices": 2, "refunds": 3}
    assert len(found["confusion"]["wrong"]) == 12
    assert found["spent"]["calls"] == 21, "the second command takes every reply from the journal"


def test_training_a_description_against_the_others_routes_more_requests_right(work: Path) -> None:
    train = ("train", "--package", "skills/travel", "--description", "-c", "config.yaml")
    done = here(work, *train, "env.options={skills: skills}", "train.num_epochs=1")
    assert done.returncode == 0, done.stderr
    before = json.loads(routed(work, "--json").stdout)
    assert here(work, "export", "outputs/travel-description", "--to", "skills/travel", "--overwrite").returncode == 0
    after = json.loads(routed(work, "--json").stdout)
    assert after["score"] > before["score"]
    assert "Use it for requests about" in read_package((work / "skills/travel/SKILL.md").read_text()).description
    (report,) = work.glob("outputs/travel-description/*/report.html")
    assert "Which skill is loaded for which request" in report.read_text()


def test_a_training_in_a_library_counts_what_its_description_can_change(work: Path) -> None:
    """A request for another skill is solved as long as the trained one is left."""
    env = env_of(work, package=str(work / "skills" / "travel"))
    items = {item.answers[0]: item for item in env.items("train")}
    assert env.score(items["calendar"], "invoices").hard == 1
    assert env.score(items["calendar"], "travel").feedback == (
        "the skill is not for this request, which is for calendar"
    )
    assert env.score(items["travel"], "calendar").feedback == (
        "the skill is for this request, and was left out: calendar was loaded"
    )
    assert env.score(items["travel"], "calendar, travel").hard == 0, "one skill is asked for"
    whole = env_of(work)
    assert whole.score(items["calendar"], "invoices").feedback == "invoices was loaded; the request is for calendar"


def test_several_loaded_skills_are_a_column_of_their_own() -> None:
    matrix = confusion([trajectory("a", "a, b"), trajectory("a", "a"), trajectory("none", "none")])
    assert matrix.names == ("a", "none", "several")
    assert matrix.table() == [("a", "1", "·", "1"), ("none", "·", "1", "·")]
    assert [row.loaded for row in matrix.wrong] == ["a, b"]


def test_an_answer_that_is_no_skill_of_the_library_is_refused(work: Path) -> None:
    lines = (work / "requests.jsonl").read_text().replace('["travel"]', '["voyage"]')
    (work / "requests.jsonl").write_text(lines)
    done = routed(work)
    assert done.returncode == 2
    assert "must name a skill (calendar, invoices, refunds, travel, none), not 'voyage'" in done.stderr


@pytest.mark.parametrize("name", ["none", "several", "leave"])
def test_a_skill_with_the_name_of_another_answer_is_refused(work: Path, name: str) -> None:
    shutil.copytree(work / "skills" / "refunds", work / "skills" / name)
    text = (work / "skills" / name / "SKILL.md").read_text()
    (work / "skills" / name / "SKILL.md").write_text(text.replace("name: refunds", f"name: {name}"))
    done = routed(work)
    assert done.returncode == 2
    assert f"a skill cannot have this name, because '{name}' is a reserved answer; rename the package" in done.stderr


def test_a_library_alone_is_measured_and_not_trained(work: Path) -> None:
    options = "env.options={skills: skills}"
    done = here(work, "train", "-c", "config.yaml", "env.name=trigger", options, "train.init_skill=skills/travel")
    assert done.returncode == 2
    assert "env.options.package is empty; set it to the package" in done.stderr


def test_lint_names_descriptions_that_overlap(work: Path) -> None:
    done = here(work, "lint", "skills", "--json")
    assert done.returncode == 0, done.stderr
    rules = {
        name: [f["says"] for f in own["findings"] if f["rule"] == "overlap"]
        for name, own in json.loads(done.stdout).items()
    }
    says = "the description has many words in common with that of skills/{}: amount, customer, payment"
    assert rules == {
        "skills/calendar": [],
        "skills/invoices": [says.format("refunds")],
        "skills/refunds": [says.format("invoices")],
        "skills/travel": [],
    }
