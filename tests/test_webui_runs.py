"""Runs as the server sees them: index, processes that outlive it, and the pulse."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillopt.run.directory import RunDirectory
from skillopt.run.files import append_jsonl, read_json
from skillopt_webui.alive import holder
from skillopt_webui.runs import RunIndex
from skillopt_webui.settings import make_settings
from skillopt_webui.stream import new_events
from support import differing, essence, train_sim, until
from webui import Ui, make_workspace, serving

SLOW = (
    "models.target_model=sim:world?latency=0.3",
    "train.num_epochs=1",
    "hardware.workers=1",
    "train.batch_size=6",
    "env.options={rules: 8, train: 24, val: 16, test: 12}",
)
"""Slow with one worker, quick with many; the number of workers changes no result."""


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    with serving(make_workspace(tmp_path / "work")) as running:
        yield running


@pytest.mark.slow
def test_a_run_outlives_its_server_is_found_again_and_ends_as_if_nothing_had_happened(ui: Ui, tmp_path: Path) -> None:
    run = ui.launch(*SLOW)
    pulse = until(
        lambda: (
            (ui.get(f"/api/runs/{run}")["live"] or {}).get("in_flight", {}).get("target")
            and ui.get(f"/api/runs/{run}")["live"]
        )
    )
    assert pulse["spent"]["calls"][0] > 0
    before = ui.get(f"/api/runs/{run}")["pid"]
    ui.stop()
    os.kill(before, 0)
    ui.start()
    assert ui.get(f"/api/runs/{run}")["pid"] == before
    assert ui.get("/api/runs")["rows"][0] | {"id": run, "status": "running"} == ui.get("/api/runs")["rows"][0]

    assert ui.ask(f"/api/runs/{run}/resume", {})[0] == 400, "it is being worked on"
    until(lambda: ui.get(f"/api/runs/{run}")["steps"])
    ui.post(f"/api/runs/{run}/pause", {})
    until(lambda: not ui.get(f"/api/runs/{run}")["pid"])
    assert read_json(ui.run(run).summary)["stop_reason"] == "interrupted"
    assert ui.ask(f"/api/runs/{run}/pause", {})[0] == 400, "nobody is there to pause"
    assert ui.ask(f"/api/runs/{run}/resume", {"set": {"train.seed": "3"}})[0] == 400, "that would be another run"

    launch = ui.post(f"/api/runs/{run}/resume", {"set": {"budget.max_calls": "5000"}})
    until(lambda: ui.get(f"/api/runs/{run}")["pid"])
    ui.post(f"/api/runs/{run}/stop", {})
    assert not ui.get(f"/api/runs/{run}")["pid"]
    until(lambda: ui.get(f"/api/launches/{launch['id']}")["state"] != "running")

    launch = ui.post(f"/api/runs/{run}/resume", {"set": {"hardware.workers": "32"}})
    until(lambda: ui.get(f"/api/launches/{launch['id']}")["code"] == 0)
    assert not ui.run(run).live.exists(), "the pulse ends with the run"
    quiet = train_sim(tmp_path / "quiet", *SLOW, "hardware.workers=32")
    assert differing(essence(ui.run(run)), essence(RunDirectory(quiet.path))) == []


def test_a_command_that_fails_says_why(ui: Ui) -> None:
    yaml = "env: {name: qa, split_dir: data}\nmodels: {target_model: 'sim:world', optimizer_model: 'sim:world'}\n"
    launch = ui.post("/api/launch", {"yaml": yaml})
    ended = until(
        lambda: ui.get(f"/api/launches/{launch['id']}") if ui.get(f"/api/launches/{launch['id']}")["code"] else None
    )
    assert ended["code"] == 2
    assert "has no train/ folder" in ended["log"]
    status, answer = ui.ask("/api/configs/preview", {"yaml": yaml})
    assert status == 400
    assert "has no train/ folder" in answer["error"]


def test_a_run_that_was_started_in_a_terminal_is_live_too_and_looking_does_not_disturb_it(ui: Ui) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "skillopt.cli", "train", "-c", "configs/sim/default.yaml", *SLOW]
    child = subprocess.Popen(command, cwd=ui.workspace, stdout=subprocess.DEVNULL)
    try:
        row = until(lambda: next((r for r in ui.get("/api/runs")["rows"] if r["status"] == "running"), None))
        assert ui.get(f"/api/runs/{row['id']}")["pid"] == child.pid
        ui.post(f"/api/runs/{row['id']}/pause", {})
        assert child.wait() == 130
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            child.wait()


def test_the_index_holds_thousands_of_runs_and_reads_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = train_sim(tmp_path / "outputs", "train.num_epochs=1")
    names = ("summary.json", "config.json", "history.json", "run.lock")
    for number in range(2000):
        folder = tmp_path / "outputs" / f"bench{number % 7}" / f"seed{number}-00000000"
        folder.mkdir(parents=True)
        for name in names:
            os.link(result.path / name, folder / name)
    index = RunIndex(make_settings(workspace=tmp_path))
    rows = index.rows()
    assert len(rows) == 2001
    assert {row["status"] for row in rows} == {"finished"}
    assert len(index.sparks([rows[0]["id"]])[rows[0]["id"]]) > 1
    read: list[Path] = []
    monkeypatch.setattr("skillopt_webui.runs.read_json", read.append)
    assert index.rows() == rows
    assert read == []


def test_only_a_held_lock_makes_a_run_live(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.held():
        assert holder(run.root) == os.getpid()
    assert holder(run.root) is None


def test_new_events_come_once_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_jsonl(path, [{"kind": "a"}, {"kind": "b"}])
    (first, a), (second, b) = new_events(path, 0)
    assert (a["kind"], b["kind"]) == ("a", "b")
    with path.open("a") as file:
        file.write('{"kind": "c"')
    assert list(new_events(path, second)) == []
    with path.open("a") as file:
        file.write("}\n")
    assert [event["kind"] for _, event in new_events(path, second)] == ["c"]
    assert [event["kind"] for _, event in new_events(path, first)] == ["b", "c"]
    path.write_text("")
    assert list(new_events(path, second)) == []
