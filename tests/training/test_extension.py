"""A finished run continues with more epochs, in a phase of its own, and reads the test split when it may."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skillopt.errors import Stopped, UserError
from skillopt.record.damage import find_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.record.files import read_json, read_jsonl
from skillopt.record.run import Run
from skillopt.record.state import State
from skillopt.sim.model import SimOptions
from skillopt.training import trainer
from skillopt.view.console import Lines
from skillopt.view.html import write_report
from skillopt.view.review_dialog import review_run
from support import REPO, differing, essence, only_run, over_http, sim_server, skillopt, train_sim

TASKS = "env.options={rules: 20, train: 24, val: 20, test: 6}"
LONG = (TASKS, "train.batch_size=6", "optimizer.learning_rate=2", "optimizer.lr_scheduler=cosine")
"""Four steps an epoch, and too few edits to solve every task."""
EPOCHS_1, EPOCHS_2, EPOCHS_3 = (f"train.num_epochs={n}" for n in (1, 2, 3))
BAD = "models.optimizer_model=sim:world?duds=1"


def rates(run: RunDirectory) -> list[float]:
    return [record.learning_rate.scheduled for record in Run(run).history]


def said(events: list[Event]) -> str:
    lines = Lines()
    return "\n".join(filter(None, map(lines, events)))


def test_more_epochs_continue_a_finished_run_in_a_phase_with_its_own_schedule(tmp_path: Path) -> None:
    first = train_sim(tmp_path, *LONG, EPOCHS_1)
    run, seen = RunDirectory(first.path), list[Event]()
    before = Run(run).history
    extended = train_sim(tmp_path, *LONG, EPOCHS_3, listeners=[seen.append])
    assert extended.path == first.path
    assert "Extending a finished run: epochs 2–3; the test split will be read again" in said(seen)
    after = Run(run).history
    assert [record.model_copy(update={"epoch_end": None}) for record in after[:4]] == [
        record.model_copy(update={"epoch_end": None}) for record in before
    ]
    assert len(after) == 12
    alone = RunDirectory(train_sim(tmp_path / "alone", *LONG, EPOCHS_2).path)
    assert rates(run)[4:] == rates(alone), "step k of the phase has the rate of step k of a run of as many steps"
    assert [(phase.after, phase.epochs) for phase in extended.summary.phases] == [(0, 1), (4, 3)]
    assert len(Run(run).test_reads) == 2
    write_report(run)
    assert run.report_md.read_text().count("by train, 6 items") == 2
    assert "Extended after step 4: epochs 2–3" in run.report_md.read_text()
    assert "Extended after step 4: epochs 2–3" in run.report.read_text()
    assert find_damage(run) == []
    again = train_sim(tmp_path, *LONG, EPOCHS_3)
    assert again.summary == extended.summary
    assert len(Run(run).test_reads) == 2


def test_fewer_epochs_are_refused_in_words_and_fresh_begins_another(tmp_path: Path) -> None:
    first = train_sim(tmp_path, *LONG, EPOCHS_2)
    with pytest.raises(
        UserError, match=r"already has 2 epochs, more than train.num_epochs=1; start a separate run with --fresh"
    ):
        train_sim(tmp_path, *LONG, EPOCHS_1)
    assert train_sim(tmp_path, *LONG, EPOCHS_1, mode="fresh").path != first.path
    assert train_sim(tmp_path, *LONG, EPOCHS_2).path == first.path, "each number of epochs finds its own run"


def test_an_unfinished_run_keeps_its_plan(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train_sim(tmp_path, *LONG, EPOCHS_2, "budget.max_calls=60")
    with pytest.raises(UserError, match=r"begun with train.num_epochs=2 and is not finished.*--fresh"):
        train_sim(tmp_path, *LONG, EPOCHS_3)
    train_sim(tmp_path, *LONG, EPOCHS_2)


def test_an_extension_by_another_method_is_refused_and_the_result_stays_readable(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path, *LONG, EPOCHS_1).path)
    state = State.read(run.state)
    state.pins |= {"method": "another", "skillopt": "0.1.9"}
    state.write(run.state)
    with pytest.raises(UserError, match=r"another method. Extend it with that version"):
        train_sim(tmp_path, *LONG, EPOCHS_2)
    assert train_sim(tmp_path, *LONG, EPOCHS_1).path == run.root


def test_a_run_whose_validation_tasks_are_all_right_is_not_extended(tmp_path: Path) -> None:
    easy = ("env.options={rules: 6, train: 24, val: 12, test: 6}", "train.batch_size=6", "optimizer.learning_rate=8")
    why, seen = "all 12 validation tasks are right", list[Event]()
    first = train_sim(tmp_path, *easy, EPOCHS_1, "models.optimizer_model=sim:world", listeners=[seen.append])
    assert first.summary.stop_reason == why
    assert f"Ended early, after step {first.summary.steps.run} of 4: {why}" in said(seen)
    seen.clear()
    state = (first.path / "runtime_state.json").read_bytes()
    again = train_sim(tmp_path, *easy, EPOCHS_2, "models.optimizer_model=sim:world", listeners=[seen.append])
    assert why in said(seen)
    assert again.summary == first.summary
    assert (first.path / "runtime_state.json").read_bytes() == state


def test_a_run_that_lost_its_patience_goes_on_in_the_epoch_in_which_it_ended(tmp_path: Path) -> None:
    options, seen = (*LONG, BAD, "train.patience=2"), list[Event]()
    first = train_sim(tmp_path, *options, EPOCHS_2, listeners=[seen.append])
    run = RunDirectory(first.path)
    assert first.summary.stop_reason == "no improvement in 2 steps"
    assert "Ended early, after step 2 of 8: no improvement in 2 steps" in said(seen)
    assert run.meta_skill(1).is_dir(), "a run that ends early leaves its notes"
    assert not run.slow_update(1).exists()
    extended = train_sim(tmp_path, *options, EPOCHS_3)
    assert extended.summary.steps.run == 4, "its patience is new, and ends it again"
    assert extended.summary.phases[-1].first_epoch == 1
    assert [bool(record.epoch_end) for record in Run(run).history] == [False, False, False, True]
    assert find_damage(run) == []


def test_a_decision_after_the_end_is_tried_in_the_first_new_step(tmp_path: Path) -> None:
    small = ("train.batch_size=10", "env.options={rules: 20, train: 40, val: 20, test: 4}")
    planted = (*small, "models.optimizer_model=sim:world?opposites=1")
    run = RunDirectory(train_sim(tmp_path, *planted, EPOCHS_1).path)
    conflict = Run(run).conflicts[0].id
    review_run(run, [f"{conflict}=a"], [], lambda text: None, None)
    train_sim(tmp_path, *planted, EPOCHS_2)
    used = [record.step for record in Run(run).history if record.review]
    assert used == [5]
    assert any(edit.source.startswith("review") for edit in Run(run).history[4].applied)


# The test split


def test_the_test_split_stays_unread_until_the_config_wants_it(tmp_path: Path) -> None:
    unread = train_sim(tmp_path, *LONG, EPOCHS_1, "evaluation.test=false")
    run = RunDirectory(unread.path)
    assert unread.summary.status == "finished"
    assert unread.summary.best.test is None
    assert unread.summary.best.val is not None
    assert "the test split was not read" in unread.verdict
    assert not run.test_reads.exists()
    assert list(run.evaluations.glob("test_*")) == []
    assert train_sim(tmp_path, *LONG, EPOCHS_1, "evaluation.test=false").summary == unread.summary
    read = train_sim(tmp_path, *LONG, EPOCHS_1)
    assert read.path == unread.path
    assert read.summary.best.test is not None
    assert "held-out tasks" in read.verdict
    train_sim(tmp_path, *LONG, EPOCHS_1)
    assert len(Run(run).test_reads) == 1
    assert find_damage(run) == []


def test_a_comparison_by_the_test_split_needs_it(tmp_path: Path) -> None:
    options = ("--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}", "evaluation.test=false")
    refused = skillopt("replicate", *options)
    assert refused.returncode == 2
    assert "evaluation.test: must be true, because replicate compares scores of the test split" in refused.stderr


def test_trials_of_several_epochs_are_runs_of_their_own(tmp_path: Path) -> None:
    options = ("--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}", TASKS)
    done = skillopt("sweep", *options, "train.num_epochs=2,1")
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("sweeps/*/*/sweep.json")
    runs = {row["values"]["train.num_epochs"]: Path(row["run"]) for row in read_json(file)["rows"]}
    assert runs[1] != runs[2]
    assert all(len(State.read(path / "runtime_state.json").phases) == 1 for path in runs.values())
    assert train_sim(tmp_path, TASKS, EPOCHS_1).path == runs[1]


# Kills


def start(out: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "skillopt.cli", "train", "--config", "configs/sim/default.yaml"]
    return subprocess.Popen(
        [*command, f"env.output_root={out}", *overrides], cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


@pytest.mark.slow
def test_an_extension_that_is_killed_ends_as_one_that_is_not(tmp_path: Path) -> None:
    draw = random.Random(3)
    with sim_server(SimOptions(duds=0.35, latency=0.01, jitter=1)) as (_, url):
        size = (*LONG, *over_http(url))
        for name in ("calm", "rough"):
            train_sim(tmp_path / name, *size, EPOCHS_1)
        calm = RunDirectory(train_sim(tmp_path / "calm", *size, EPOCHS_2).path)
        run = only_run(tmp_path / "rough")
        for _ in range(2):
            process, goal = (
                start(tmp_path / "rough", *size, EPOCHS_2),
                run.events.stat().st_size + draw.randint(1, 2500),
            )
            while process.poll() is None and run.events.stat().st_size < goal:
                time.sleep(0.002)
            assert process.poll() is None, "it ended before it was killed"
            process.send_signal(signal.SIGKILL)
            process.communicate()
        done = start(tmp_path / "rough", *size, EPOCHS_2)
        _, errors = done.communicate()
    assert done.returncode == 0, errors.decode()
    assert differing(essence(calm), essence(run)) == []
    assert len(Run(run).test_reads) == 2
    assert find_damage(run) == []


@pytest.mark.parametrize("name", ["take_back", "write_config", "measure_finals"])
def test_an_extension_that_stops_at_any_write_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    train_sim(tmp_path, *LONG, EPOCHS_1)

    def killed(*args: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(trainer, name, killed)
        with pytest.raises(RuntimeError):
            train_sim(tmp_path, *LONG, EPOCHS_2)
    done = train_sim(tmp_path, *LONG, EPOCHS_2)
    assert done.summary.steps.run == 8
    assert read_json(done.path / "config.json")["train.num_epochs"] == 2
    assert len(read_jsonl(done.path / "test_reads.jsonl")) == 2
    assert find_damage(RunDirectory(done.path)) == []
