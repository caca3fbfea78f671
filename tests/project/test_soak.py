"""Faults of the endpoint, of every kind that `bench/soak.py` sends: no score knows of them, and nothing stays open."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillopt.sim.model import SimOptions
from support import differing, essence, only_run, over_http, sim_server, train_sim

pytestmark = pytest.mark.chaos

SMALL = ("train.num_epochs=2", "train.batch_size=20", "env.options={rules: 12, train: 40, val: 30, test: 20}")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_faults_on_the_wire_touch_no_score_and_leave_no_open_file(tmp_path: Path) -> None:
    rough = SimOptions(
        duds=0.3, rate_limit=0.03, retry_after=0.01, server_error=0.03, reset=0.03, hang=0.01, garbled=0.03, torn=0.03
    )
    asked, before = {}, open_files()
    for name, weather in (("clean", SimOptions(duds=0.3)), ("rough", rough)):
        with sim_server(weather) as (server, url):
            again = ["hardware.call_timeout=2", "hardware.max_retries=12"]
            steady = ["models.target_deterministic=true", "models.optimizer_deterministic=true"]
            train_sim(tmp_path / name, *SMALL, *again, *steady, *over_http(url))
            asked[name] = server.requests.total()
    assert asked["rough"] > 1.05 * asked["clean"], "there were faults"
    assert differing(essence(only_run(tmp_path / "clean")), essence(only_run(tmp_path / "rough"))) == []
    assert open_files() <= before
