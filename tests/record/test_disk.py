"""A disk that is full, read-only or gone: a clear word, the state intact, and the same command goes on."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skillopt.record.damage import find_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.journal import Journal, JournalRow
from skillopt.record.state import State
from skillopt.sim.model import SimOptions
from support import REPO, differing, essence, only_run, over_http, sim_server, skillopt, train_sim, until

SHORT = ["train.num_epochs=2", "env.options={rules: 8, train: 12, val: 10, test: 10}", "train.batch_size=6"]
SLOW = pytest.mark.slow
CONFIG = ["train", "--config", "configs/sim/default.yaml", *SHORT]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return RunDirectory(train_sim(tmp_path_factory.mktemp("calm"), *SHORT).path)


@pytest.fixture(params=[pytest.param("150k", marks=SLOW), pytest.param("250k", marks=SLOW), "300k"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own with room for part of a run."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(disk)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("needs the right to mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_stops_the_run_and_room_lets_it_go_on(small_disk: Path, calm: RunDirectory) -> None:
    done = skillopt(*CONFIG, f"env.output_root={small_disk}")
    assert done.returncode in {2, 3}, done.stderr
    assert "space" in done.stderr
    assert "Traceback" not in done.stderr
    if only_run(small_disk).state.exists():
        assert State.read(only_run(small_disk).state).status in {"running", "stopped"}
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True)
    again = skillopt(*CONFIG, f"env.output_root={small_disk}")
    assert again.returncode == 0, again.stderr
    assert differing(essence(calm), essence(only_run(small_disk))) == []


def test_a_slow_disk_changes_nothing(tmp_path: Path, calm: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    waits: list[int] = []

    def slowly(handle: int) -> None:
        waits.append(handle)
        time.sleep(0.002)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slowly)
    slow = train_sim(tmp_path, *SHORT)
    assert len(waits) > 20
    assert differing(essence(calm), essence(RunDirectory(slow.path))) == []


def limited(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [pytest.param(9_000, marks=SLOW), 30_000, pytest.param(36_000, marks=SLOW)])
def test_a_file_size_limit_stops_the_run_and_a_higher_one_lets_it_go_on(
    size: int, tmp_path: Path, calm: RunDirectory
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "skillopt.cli", *CONFIG, f"env.output_root={tmp_path}"],
        capture_output=True, text=True, cwd=REPO, check=False, preexec_fn=lambda: limited(size),
    )  # fmt: skip
    assert done.returncode in {2, 3}, done.stderr
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr or "full" in done.stderr or "File too large" in done.stderr
    again = train_sim(tmp_path, *SHORT)
    assert differing(essence(calm), essence(RunDirectory(again.path))) == []


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:  # root may write anywhere but to a read-only mount
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)], check=False).returncode:
            pytest.skip("needs the right to mount")
    else:
        tmp_path.chmod(0o500)
    try:
        done = skillopt(*CONFIG, f"env.output_root={tmp_path}")
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(tmp_path)], check=True)
        else:
            tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_folder_that_vanishes_is_told_and_half_a_run_is_not_left_in_its_place(tmp_path: Path) -> None:
    with sim_server(SimOptions(latency=0.02)) as (server, url):
        process = subprocess.Popen(
            [sys.executable, "-m", "skillopt.cli", *CONFIG, *over_http(url), f"env.output_root={tmp_path}"],
            cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until(lambda: server.requests.total() >= 15 or process.poll() is not None)
        shutil.move(only_run(tmp_path).root, tmp_path / "aside")
        _, told = process.communicate()
    assert process.returncode == 2, told
    assert "was removed or replaced" in told
    assert not list((tmp_path / "sim").glob("*/runtime_state.json"))


@pytest.mark.slow
def test_a_second_trainer_is_refused_at_once_and_told_who_the_first_is(tmp_path: Path) -> None:
    def command(url: str) -> list[str]:
        return [*CONFIG, *over_http(url), f"env.output_root={tmp_path}"]

    with sim_server(SimOptions(latency=60)) as (server, slow), sim_server() as (_, fast):
        first = subprocess.Popen(
            [sys.executable, "-m", "skillopt.cli", *command(slow)],
            cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(lambda: server.requests.total() or first.poll() is not None)
        second = skillopt(*command(fast))
        first.kill()
        first.wait()
        taken_over = skillopt(*command(fast))
    assert second.returncode == 2
    assert f"process {first.pid} on {os.uname().nodename}, since 20" in second.stderr
    assert taken_over.returncode == 0, taken_over.stderr
    assert find_damage(only_run(tmp_path)) == []


def test_what_a_lock_file_says_from_before_a_restart_keeps_nobody_out(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    (tmp_path / "run.lock").write_text(f"{os.getpid()} on {os.uname().nodename}, since 1999-01-01 00:00:00 +0000")
    assert not run.busy()
    with run.held():
        assert run.busy()


# The journal


def paid(key: str, size: int = 10) -> JournalRow:
    return JournalRow(key=key, attempt=1, role="target", stage="rollout", model="m", turn=1, reply={"text": "x" * size})


def test_a_reply_that_the_disk_did_not_take_is_reported_to_everybody_who_stored_one(tmp_path: Path) -> None:
    """`put` writes at once what others are about to store, and fails with them."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.put(paid("before"))

        async def at_once() -> list[BaseException | None]:
            stored = [asyncio.create_task(journal.store(paid(key))) for key in ("a", "b")]
            await asyncio.sleep(0)
            room = max(path.stat().st_size for path in tmp_path.iterdir())
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
            try:
                with pytest.raises(sqlite3.Error):
                    journal.put(paid("c", 100_000))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            return await asyncio.gather(*stored, return_exceptions=True)

        outcomes = asyncio.run(at_once())
        told = {key: outcome is None for key, outcome in zip("ab", outcomes, strict=True)}
        assert told == {key: journal.get(key, 1) is not None for key in "ab"}, "told that it is stored, and it is not"
        for key in "abc":
            journal.put(paid(key))
        assert (journal.size, journal.totals()[0].calls) == (4, 4)


def test_replies_are_on_disk_at_the_end_of_a_step_also_while_somebody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut leaves: the files as far as they were synchronised; SQLite syncs its main file itself."""
    fsync, durable = os.fsync, dict[int, int]()

    def noted(handle: int) -> None:
        fsync(handle)
        durable[os.fstat(handle).st_ino] = os.fstat(handle).st_size

    monkeypatch.setattr(os, "fsync", noted)
    path, left = tmp_path / "journal.sqlite", tmp_path / "left.sqlite"
    with Journal(path) as journal, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        journal.put(paid("before"))
        journal.sync()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM replies").fetchone()
        journal.put(paid("during the step"))
        assert journal.sync() == 2
        log = Path(f"{path}-wal")
        shutil.copy(path, left)
        Path(f"{left}-wal").write_bytes(log.read_bytes()[: durable.get(log.stat().st_ino, 0)])
    with Journal(left) as after:
        assert [key for key in ("before", "during the step") if after.get(key, 1) is None] == [], "lost by the cut"
