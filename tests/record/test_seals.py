"""Seals: what a step left is sealed once, at a cost that does not grow with the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillopt.errors import Damaged
from skillopt.record import damage as module
from skillopt.record.damage import broken, seal_files
from skillopt.record.directory import RunDirectory
from skillopt.record.state import State


def stepped(run: RunDirectory, state: State) -> None:
    """One more finished step: a file of its own, and a line in the log."""
    state.step += 1
    run.step(state.step).mkdir(parents=True)
    (run.step(state.step) / "step_record.json").write_text(f'{{"step": {state.step}}}')
    with run.patch_log.path.open("a") as log:
        log.write(f"line {state.step}\n")
    seal_files(run, state)


def test_a_step_of_a_long_run_reads_only_what_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, state = RunDirectory(tmp_path), State()
    real, read = module.file_digest, []
    monkeypatch.setattr(module, "file_digest", lambda path: (read.append(path), real(path))[1])
    for _ in range(30):
        stepped(run, state)
    records = [path for path in read if path != run.patch_log.path]
    assert records == [run.step(n) / "step_record.json" for n in range(1, 31)]


def test_what_was_sealed_over_several_sessions_is_checked_as_one(tmp_path: Path) -> None:
    run, state = RunDirectory(tmp_path), State()
    for _ in range(3):
        stepped(run, state)
        state.write(run.state)
        state = State.read(run.state)
    assert list(broken(run, state)) == []
    (run.step(2) / "step_record.json").write_text('{"step": 9}')
    assert [path.parent.name for path, _ in broken(run, state)] == ["step_0002"]


def test_a_log_that_is_cut_while_the_run_is_at_work_is_not_sealed(tmp_path: Path) -> None:
    run, state = RunDirectory(tmp_path), State()
    stepped(run, state)
    stepped(run, state)
    os.truncate(run.patch_log.path, 3)
    with pytest.raises(Damaged, match="became shorter during the run"):
        seal_files(run, state)
