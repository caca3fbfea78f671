"""A run is named by its first start, its seed and a hash; the same command finds it, and two at once make one run."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from skillopt.errors import Stopped, UserError
from skillopt.record import run_key
from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt.record.run_key import RunKey
from skillopt.record.state import State
from skillopt.tasks import open_env
from skillopt.training import session
from skillopt.training.initial import initial_of
from skillopt.training.initial import run_key as key_of
from skillopt.view.run_rows import list_runs
from support import SMALL, only_run, train_sim

NAME = "seed42-2278d520"
EVENING = datetime(2026, 11, 17, 22, 40, 5)


@pytest.fixture(autouse=True)
def _evening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_key, "now", lambda: EVENING)


def key(folder: Path, epochs: int = 4) -> RunKey:
    return RunKey(folder=folder, name=NAME, old_name="seed42-00000000", epochs=epochs)


def test_a_run_is_named_by_its_first_start_and_found_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train_sim(tmp_path, *SMALL)
    assert re.fullmatch(r"2026-11-17_22-40-05_seed42-[0-9a-f]{8}", first.path.name)
    monkeypatch.setattr(run_key, "now", lambda: EVENING.replace(hour=23))
    assert train_sim(tmp_path, *SMALL).path == first.path


@pytest.mark.parametrize("hour", [22, 21], ids=["the same second", "a clock that was set back"])
def test_a_fresh_run_sorts_after_the_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hour: int) -> None:
    first = train_sim(tmp_path, *SMALL)
    monkeypatch.setattr(run_key, "now", lambda: EVENING.replace(hour=hour))
    fresh = train_sim(tmp_path, *SMALL, mode="fresh")
    assert fresh.path.name > first.path.name
    assert train_sim(tmp_path, *SMALL).path == fresh.path


def test_a_run_with_the_name_of_an_earlier_version_is_listed_and_continued(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train_sim(tmp_path, *SMALL, "budget.max_calls=30")
    run = only_run(tmp_path)
    config = Run(run).config
    old = run.root.with_name(key_of(config, open_env(config), initial_of(config)).old_name)
    run.root.rename(old)
    state = State.read(RunDirectory(old).state)
    state.phases = []  # which earlier versions did not write
    state.write(RunDirectory(old).state)
    assert [row.path for row in list_runs(tmp_path)] == [old]
    assert train_sim(tmp_path, *SMALL).path == old
    fresh = train_sim(tmp_path, *SMALL, mode="fresh")
    assert fresh.path.name.startswith("2026-11-17")
    assert train_sim(tmp_path, *SMALL).path == fresh.path


def test_a_folder_of_somebody_else_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / f"copy_{NAME}").mkdir()
    assert key(tmp_path).find() is None
    assert key(tmp_path).new().root.name == f"2026-11-17_22-40-05_{NAME}"


def test_what_another_process_has_begun_meanwhile_is_not_begun_again(tmp_path: Path) -> None:
    run = key(tmp_path).new()
    (tmp_path / f"2026-11-17_22-40-04_{NAME}").mkdir()
    refused = pytest.raises(UserError, match=r"22-40-04.*another process has just begun this run")
    with refused, key(tmp_path).beginning(run, extend=True):
        run.root.mkdir()
    assert not run.root.exists()


def test_the_same_command_twice_at_once_makes_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have chosen a name, in two seconds, before either has a folder."""
    seconds, both_named, opening = count(), Barrier(2), session.open_models

    def open_models(*arguments: Any) -> Any:
        both_named.wait()
        return opening(*arguments)

    monkeypatch.setattr(run_key, "now", lambda: EVENING.replace(second=next(seconds)))
    monkeypatch.setattr(session, "open_models", open_models)
    with ThreadPoolExecutor(2) as pool:
        errors = [one.exception() for one in [pool.submit(train_sim, tmp_path, *SMALL) for _ in range(2)]]
    (error,) = filter(None, errors)
    assert re.search("another (trainer|process)", str(error))
    only_run(tmp_path)
