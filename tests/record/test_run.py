"""Run.open: every file of a run, typed, and nothing from outside of its folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import Damaged, UserError
from skillopt.record.base import Record
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Decision
from skillopt.record.events import KINDS, RunFinished, RunStarted
from skillopt.record.files import plain
from skillopt.record.run import Run
from skillopt.skill.folder import NotAFileError
from skillopt.training.edits.review import write_decisions
from support import REPO, SIM, SMALL, skillopt

FILES = {
    "summary.json": lambda run: run.summary,
    "history.json": lambda run: run.history,
    "evaluations/val_initial.json": lambda run: run.evaluations["val_initial"],
    "steps/step_0001/gate.json": lambda run: run.gate(1),
    "steps/step_0001/trajectory_digest.json": lambda run: run.batch(1),
    "steps/step_0001/patches.json": lambda run: run.patches(1),
    "steps/step_0001/aggregate.json": lambda run: run.pool(1),
    "steps/step_0001/selected.json": lambda run: run.selection(1),
    "config.json": lambda run: run.settings,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    done = skillopt("train", "--config", SIM, f"env.output_root={folder}", *SMALL)
    assert done.returncode == 0, done.stderr
    return next(path.parent for path in folder.glob("*/*/config.json"))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packaged")
    package = folder / "house-codes"
    (package / "references").mkdir(parents=True)
    (package / "SKILL.md").write_text("---\nname: house-codes\ndescription: Codes of the house.\n---\nAnswer.\n")
    (package / "references" / "rules.md").write_text("# Rules\n")
    options = [f"env.output_root={folder}", *SMALL, f"train.init_skill={package}"]
    done = skillopt("train", "--config", SIM, *options)
    assert done.returncode == 0, done.stderr
    return next(path.parent for path in folder.glob("*/*/config.json"))


@pytest.mark.parametrize("name", FILES)
def test_a_record_is_written_as_it_was_read(trained: Path, name: str) -> None:
    stored: Any = json.loads((trained / name).read_text())
    assert plain(FILES[name](Run.open(trained))) == stored
    assert list(plain(FILES[name](Run.open(trained)))) == list(stored)


def test_every_rollout_is_read(trained: Path) -> None:
    run = Run.open(trained)
    assert {trace.item_id for trace in run.traces()} >= set(run.evaluations["test_best"].items)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        Run.open(tmp_path)


LINKED: dict[str, tuple[str, Callable[[Run], object]]] = {
    "summary": ("summary.json", lambda run: run.summary),
    "settings": ("config.json", lambda run: run.settings),
    "a step's folder": ("steps/step_0001", lambda run: run.gate(1)),
    "all steps": ("steps", lambda run: run.gate(1)),
    "measured steps": ("steps", lambda run: list(run.measurements())),
    "evaluations": ("evaluations", lambda run: list(run.measurements())),
    "an evaluation": ("evaluations/val_initial.json", lambda run: run.evaluations),
    "versions": ("skills", lambda run: run.versions),
    "hashes": ("skills", lambda run: run.versions_by_hash),
    "a skill": ("skills/skill_v0000.md", lambda run: run.skill(0)),
    "the best skill": ("best_skill.md", lambda run: run.best_skill),
    "the lock": ("run.lock", lambda run: run.status),
    "decisions": ("review", lambda run: run.decisions),
    "conflicts": ("review", lambda run: run.conflicts),
    "comments": ("comments.jsonl", lambda run: run.comments),
    "feedback": ("feedback.jsonl", lambda run: run.feedback),
    "live": ("live.json", lambda run: run.live),
    "patch log": ("patch_log.jsonl", lambda run: run.patch_log()),
}


@pytest.mark.parametrize("what", LINKED)
def test_nothing_outside_of_the_folder_is_read(run: Path, tmp_path: Path, what: str) -> None:
    name, read = LINKED[what]
    elsewhere = tmp_path / "elsewhere"
    (run / "review" / "decisions.jsonl").touch()
    (run / name).touch()
    (run / name).rename(elsewhere)
    (run / name).symlink_to(elsewhere)
    opened = Run.open(run)
    with pytest.raises(NotAFileError):
        read(opened)


def test_a_linked_event_log_gives_no_events(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (run / "events.jsonl").rename(elsewhere)
    assert elsewhere.stat().st_size
    (run / "events.jsonl").symlink_to(elsewhere)
    assert Run.open(run).event_rows(60_000) == []


@pytest.mark.parametrize("name", ["package", "package/references", "best_skill", "best_skill/references"])
def test_a_package_is_read_only_from_its_folder(packaged: Path, tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(packaged, tmp_path / "run"))
    assert Run.open(run).skill(0).others
    assert Run.open(run).best_skill.others
    elsewhere = tmp_path / "elsewhere"
    (run / name).rename(elsewhere)
    (run / name).symlink_to(elsewhere)
    opened = Run.open(run)
    with pytest.raises((NotAFileError, Damaged)):
        _ = opened.skill(0) if name.startswith("package") else opened.best_skill


def test_a_decision_counts_when_its_line_is_whole_and_as_it_was_written(run: Path) -> None:
    files = RunDirectory(run)
    write_decisions(files, [Decision(conflict="1-1", choice="a")])
    write_decisions(files, [Decision(conflict="1-2", choice="both")])
    assert {name: decision.choice for name, decision in Run.open(run).decisions.items()} == {"1-1": "a", "1-2": "both"}
    text = files.decisions.read_text()
    files.decisions.write_text(text + '{"conflict": "1-3", "cho')
    assert set(Run.open(run).decisions) == {"1-1", "1-2"}
    files.decisions.write_text(text.replace("both", "neither"))
    with pytest.raises(Damaged, match="line 2 is not a decision"):
        _ = Run.open(run).decisions


def test_every_event_has_its_type(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "events.jsonl").read_text().splitlines()]
    events = [KINDS[row["kind"]].model_validate(row) for row in rows]
    assert [event.row() for event in events] == rows == Run.open(trained).event_rows(10_000_000)
    (finished,) = [event for event in events if isinstance(event, RunFinished)]
    assert finished.summary == Run.open(trained).summary
    assert isinstance(events[0], RunStarted)


def test_what_a_run_does_now_is_read_in_its_type(run: Path) -> None:
    assert Run.open(run).live is None
    now = {
        "time": 1.5,
        "pid": 7,
        "kind": "progress",
        "step": 1,
        "epoch": 1,
        "progress": {"stage": "gate", "done": 1, "total": 2},
        "in_flight": {"target": 2, "optimizer": 0},
        "spent": {"minutes": [0.5, None], "calls": [3, 900]},
        "letters": {"waiting": 0, "folder": ""},
        "throttled": [],
        "retries": 0,
    }
    (run / "live.json").write_text(json.dumps(now))
    live = Run.open(run).live
    assert live is not None
    assert (live.progress.stage, live.spent["calls"]) == ("gate", (3, 900))
    assert {**plain(live)} == now


def test_a_pipe_is_not_waited_for(run: Path) -> None:
    (run / "summary.json").unlink()
    os.mkfifo(run / "summary.json")
    with pytest.raises(NotAFileError):
        _ = Run.open(run).summary


def test_an_altered_file_is_named(run: Path) -> None:
    path = run / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": "long"}))
    with pytest.raises(Damaged, match=r"summary\.json.*seconds"):
        _ = Run.open(run).summary


def test_a_config_of_another_version_is_read_as_far_as_it_is_known(run: Path) -> None:
    path = run / "config.json"
    other = {"train.unknown": 1, "new.key": 2, "evaluation.gate": ["no gate"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | other | {"train.batch_size": 7}))
    opened = Run.open(run)
    assert opened.config.train.batch_size == 7
    assert opened.settings["new.key"] == 2


def test_fields_are_read_by_name_as_in_the_file() -> None:
    class Pair(Record):
        optional = frozenset({"b"})
        a: int
        b: int | None = None

    pair = Pair(a=1)
    assert (pair["a"], pair.get("b", 0), "b" in pair, plain(pair)) == (1, 0, False, {"a": 1})
    with pytest.raises(KeyError):
        pair["c"]


def test_the_reference_names_every_file_of_a_run(trained: Path, packaged: Path) -> None:
    page = (REPO / "docs" / "reference" / "run_files.md").read_text()
    table = page[page.index("| file") : page.index("## ")]
    names = {name for line in table.splitlines() for name in re.findall(r"`([^`]+)`", line)} | {"config.json"}
    patterns = [re.compile(re.sub("SPLIT|NAME|NN+", r"\\w+", re.escape(name))) for name in names]
    files = [path.relative_to(run).as_posix() for run in (trained, packaged) for path in run.rglob("*.json*")]
    assert [file for file in files if not any(pattern.fullmatch(file) for pattern in patterns)] == []
