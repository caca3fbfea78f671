"""Runs as the server sees them: index, processes that outlive it, and the pulse."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.record.events import events_after
from skillopt.record.files import append_jsonl, read_json
from skillopt.record.journal import read_totals
from skillopt.record.run import Run
from skillopt.view.figures import total_usd
from skillopt.view.run_rows import list_runs
from skillopt_webui.alive import holder
from skillopt_webui.insight import costs
from skillopt_webui.runs import RunIndex
from skillopt_webui.settings import make_settings
from skillopt_webui.view import overview
from support import SIM, differing, essence, only_run, train_sim, until
from support.webui import Ui, make_workspace, serving

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
    row = ui.get("/api/runs")["rows"][0]
    assert (row["id"], row["status"]) == (run, "running")

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


@pytest.mark.slow
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


def test_a_launched_run_and_a_measurement_are_found_however_long_their_logs_are_and_whatever_those_say(ui: Ui) -> None:
    small = ["train.num_epochs=1", "env.options={rules: 6, train: 12, val: 10, test: 6}"]
    other = train_sim(ui.workspace / "outputs", "train.seed=5", *small)
    run = ui.launch(*small)
    until(lambda: ui.get(f"/api/runs/{run}")["summary"])
    skill = {"run": run, "version": "best"}
    measured = ui.post("/api/evaluate", {"skill": skill, "run": run, "split": "val"})["id"]
    until(lambda: ui.get(f"/api/launches/{measured}")["code"] == 0)
    until(lambda: not ui.get(f"/api/runs/{run}")["pid"])
    before = ui.get(f"/api/launches/{measured}")
    assert before["written"].split("/")[1] == "evaluations"
    assert ui.get(f"/api/measured/{before['written']}")["result"]["split"] == "val"
    folder = ui.workspace / "outputs" / ".webui" / "launches"
    (trained,) = [path.name for path in folder.iterdir() if path.name != measured]
    long = "[Step 7/400] Rollout: 4 items, 8 workers...\n" * 2000
    lies = f"Run: {other.path} (new run)\nWritten: {other.path}/summary.json\n"
    for words in (long, lies):
        for name in (trained, measured):
            with (folder / name / "log.txt").open("a") as log:
                log.write(words)
        assert ui.get(f"/api/launches/{trained}")["run"] == run
        assert ui.get(f"/api/launches/{measured}")["written"] == before["written"]


def test_a_damaged_file_of_a_run_or_a_measurement_is_told_in_words(ui: Ui) -> None:
    small = ["train.num_epochs=1", "env.options={rules: 6, train: 12, val: 10, test: 6}"]
    result = train_sim(ui.workspace / "outputs", *small)
    run = f"0/sim/{result.path.name}"
    measured = ui.workspace / "outputs" / "evaluations" / "sim" / "val-00000000"
    measured.mkdir(parents=True)
    damaged = {
        result.path / "comments.jsonl": f"/api/runs/{run}/comments",
        result.path / "labels.json": f"/api/runs/{run}/labels",
        result.path / "config.json": f"/api/runs/{run}/letters",
        result.path / "steps" / "step_0001" / "trajectories.jsonl": f"/api/runs/{run}/items/search?q=a",
        measured / "eval_summary.json": "/api/measured/0/evaluations/sim/val-00000000",
    }
    for path, address in damaged.items():
        before = path.read_bytes() if path.exists() else b""
        for junk in (b'{"kind": \n', b"\xff\xfe{\n", b"[" * 5000):
            path.write_bytes(before + junk)
            status, answer = ui.ask(address)
            assert status in {200, 400}, f"{path}: {answer}"
            assert status == 200 or str(path.parent) in answer["error"] or str(result.path) in answer["error"]
            assert ui.ask(f"/api/runs/{run}")[0] in {200, 400}
        path.write_bytes(before)
    (result.path / "comments.jsonl").write_text("{")
    assert ui.ask(f"/api/runs/{run}/comments")[0] == 400
    assert ui.ask(f"/api/runs/{run}")[0] == 200, "the rest of the run is shown"


def test_the_pages_plan_for_a_trigger_counts_the_description_alone(ui: Ui) -> None:
    package = ui.workspace / "data" / "house-codes"
    package.mkdir()
    (package / "SKILL.md").write_text("---\nname: house-codes\ndescription: Codes.\n---\n" + "A long rule.\n" * 2000)
    rows = [{"id": f"r{n}", "question": f"Request {n}?", "answer": "use" if n % 2 else "leave"} for n in range(16)]
    (ui.workspace / "data" / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "env": {"name": "trigger", "data": "data/requests.jsonl", "options": {"package": "data/house-codes"}},
        "train": {"init_skill": "data/house-codes/SKILL.md", "num_epochs": 1},
    }
    planned = ui.post("/api/configs/plan", {"yaml": json.dumps(config)})
    assert planned["tokens"]["target"]["low"] / planned["calls"]["target"]["low"] < 1000, "tokens of a call"


@pytest.mark.slow
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


def test_a_killed_run_costs_on_the_page_what_it_costs_on_the_terminal(tmp_path: Path) -> None:
    import subprocess
    import sys

    prices = 'budget.prices={"sim:world?latency=0.05": {input: 100, output: 100}}'
    overrides = [f"env.output_root={tmp_path / 'outputs'}", "models.target_model=sim:world?latency=0.05", prices]
    command = [sys.executable, "-m", "skillopt.cli", "train", "-c", str(SIM), *overrides]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: any(read_totals(path) for path in tmp_path.glob("outputs/sim/*/journal.sqlite")))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    run = only_run(tmp_path / "outputs")
    (terminal,) = list_runs(tmp_path / "outputs")
    (row,) = RunIndex(make_settings(workspace=tmp_path)).rows()
    assert terminal.usd
    assert (row.status, row.usd, row.calls) == ("interrupted", terminal.usd, terminal.calls)
    seen = overview(Run(run))
    assert seen.summary
    assert total_usd(seen.summary) == terminal.usd
    assert f"It cost {terminal.calls} call" in seen["verdict"]
    assert sum(row.usd or 0 for row in costs(Run(run)).rows if row.role == "target") == terminal.usd


def test_the_index_holds_many_runs_and_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = train_sim(tmp_path / "outputs", "train.num_epochs=1")
    names = ("summary.json", "config.json", "history.json", "run.lock")
    for number in range(300):
        folder = tmp_path / "outputs" / f"bench{number % 7}" / f"seed{number}-00000000"
        folder.mkdir(parents=True)
        for name in names:
            os.link(result.path / name, folder / name)
    index = RunIndex(make_settings(workspace=tmp_path))
    rows = index.rows()
    assert len(rows) == 301
    assert {row.status for row in rows} == {"finished"}
    assert len(index.sparks([rows[0].id])[rows[0].id]) > 1
    read: list[Path] = []
    monkeypatch.setattr("skillopt.record.run.read_bytes", read.append)
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
    (first, a), (second, b) = events_after(path, 0)
    assert (a["kind"], b["kind"]) == ("a", "b")
    with path.open("a") as file:
        file.write('{"kind": "c"')
    assert list(events_after(path, second)) == []
    with path.open("a") as file:
        file.write("}\n")
    assert [event["kind"] for _, event in events_after(path, second)] == ["c"]
    assert [event["kind"] for _, event in events_after(path, first)] == ["b", "c"]
    path.write_text("")
    assert list(events_after(path, second)) == []
