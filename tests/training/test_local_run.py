"""A whole training on a real model of this CPU, the smallest there is: killed in the middle, it repeats nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import SkillOptError
from skillopt.models import weights
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from support import REPO, without_telemetry

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module", autouse=True)
def _weights() -> None:
    try:
        weights.resolve("smollm2-135m")
    except SkillOptError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"needs the weights of smollm2-135m: `skillopt models pull smollm2-135m` ({error})")


def start(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "skillopt.cli", "train", "--config", "configs/quickstart/default.yaml"]
    command += ["--target_model", "local:smollm2-135m", f"env.output_root={out}", "models.target_max_tokens=6"]
    command += ["train.batch_size=3", "env.options={limit: {train: 6, val: 5, test: 4}}"]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def run_in(out: Path) -> RunDirectory:
    (folder,) = out.glob("*/*/")
    return RunDirectory(folder)


def journal(out: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{run_in(out).journal}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def replies(out: Path) -> int:
    try:
        return int(journal(out, "SELECT count(*) FROM replies")[0][0])
    except (ValueError, sqlite3.Error):
        return 0


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()


def test_killed_in_the_middle_of_local_rollouts_it_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    finish(start(calm))
    whole = replies(calm)
    for share in (0.25, 0.75):
        process = start(rough)
        while replies(rough) < share * whole and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = replies(rough)
    finish(start(rough))
    assert before < whole
    assert replies(rough) == whole
    assert journal(rough, "SELECT sum(calls) FROM totals") == [(whole,)], "a reply that was there was asked for again"
    histories = [without_telemetry(read_json(run_in(out).history)) for out in (calm, rough)]
    assert histories[0] == histories[1]
    assert read_json(run_in(rough).summary)["calls"]["target"] == whole
