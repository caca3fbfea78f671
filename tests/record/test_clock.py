"""The clock of the machine may be set during a run, by hours in either direction: no wait or result follows it."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace

import pytest

from skillopt.errors import Stopped, UserError
from skillopt.models.entra import EntraToken
from skillopt.models.http import retry_after
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.sim.model import SimOptions, SimulatedModel
from support import differing, essence, train_sim
from support.virtual import Clock

DAY = 86_400.0
SMALL = ("env.options={rules: 8, train: 16, val: 8, test: 8}", "train.num_epochs=1", "hardware.workers=4")


def jumping(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """From now on the wall clock jumps every third time that it is read."""
    real, reads = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: real() + by * (next(reads) // 3))


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("by", [DAY, -DAY])
def test_a_run_under_a_clock_that_jumps_waits_spends_and_learns_as_any_other(
    by: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(name: str) -> tuple[RunDirectory, float, int]:
        weather = SimOptions(latency=0.1, optimizer_latency=0.3, duds=0.3, rate_limit_every=5, retry_after=1)
        model, beats = SimulatedModel("sim:world", weather), []

        def heard(event: Event) -> None:
            if event.kind == "pulse":
                beats.append(event)

        started = time.monotonic()
        overrides = [*SMALL, "budget.max_minutes=10", "models.target_rpm=600"]
        result = train_sim(tmp_path / name, *overrides, models={"target": model, "optimizer": model}, listeners=[heard])
        return RunDirectory(result.path), time.monotonic() - started, len(beats)

    plain, seconds, beats = trained("plain")
    jumping(monkeypatch, by)
    jumped, longer, more = trained("jumped")
    assert jumped.root.name[19:] == plain.root.name[19:], "the time does not change what makes a run"
    assert differing(essence(plain), essence(jumped)) == []
    assert longer == pytest.approx(seconds, rel=0.05)
    assert more == pytest.approx(beats, abs=3)


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("by", [DAY, -DAY])
def test_the_minutes_of_a_budget_pass_at_the_same_rate_whatever_the_clock_says(
    by: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SimulatedModel("sim:world", SimOptions(latency=0.1, optimizer_latency=0.3))
    jumping(monkeypatch, by)
    started = time.monotonic()
    with pytest.raises(Stopped, match="max_minutes"):
        train_sim(tmp_path, *SMALL, "budget.max_minutes=0.02", models={"target": model, "optimizer": model})
    assert 1.2 <= time.monotonic() - started < 3


def test_a_lock_does_not_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunDirectory(tmp_path / "run").held():
        for by in (DAY, -DAY):
            jumping(monkeypatch, by)
            with pytest.raises(UserError, match="another trainer"), RunDirectory(tmp_path / "run").held():
                pass


def test_an_entra_token_is_fetched_again_when_it_is_old_although_the_clock_was_put_back(
    virtual_time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    class Credential:
        def get_token(self, scope: str) -> SimpleNamespace:
            fetched.append(scope)
            return SimpleNamespace(token=f"token {len(fetched)}", expires_on=now + 3600)

    now = 1_700_000_000.0
    monkeypatch.delenv("AZURE_OPENAI_AD_TOKEN", raising=False)
    monkeypatch.setitem(sys.modules, "azure.identity", SimpleNamespace(DefaultAzureCredential=Credential))
    monkeypatch.setattr(time, "time", lambda: now)
    token = EntraToken()
    assert [asyncio.run(token()) for _ in range(2)] == ["token 1", "token 1"]
    virtual_time.now += 3500
    now -= 7200
    assert asyncio.run(token()) == "token 2", "the first is good for less than five minutes"


def test_a_date_to_wait_for_is_measured_by_the_clock_that_named_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = 1_700_000_000
    for ours in (there - 7200, there, there + 7200):
        monkeypatch.setattr(time, "time", lambda ours=ours: float(ours))
        headers = {"Retry-After": formatdate(there + 30, usegmt=True), "Date": formatdate(there, usegmt=True)}
        assert retry_after(headers) == 30
