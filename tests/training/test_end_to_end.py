"""A whole training in the simulated world: what it reaches, what it leaves, what it promises about sameness."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillopt.models.base import ChatModel
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.skill import replay
from support import REPO, SIM, SMALL, Spy, differing, essence, only_run, over_http, sim_server, skillopt, train_sim


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return RunDirectory(train_sim(tmp_path_factory.mktemp("finished")).path)


def test_the_skill_learns_the_hidden_rules(finished: RunDirectory) -> None:
    summary = read_json(finished.summary)
    assert summary["initial"]["val"] < 0.4
    assert summary["best"]["val"] >= 0.95
    assert summary["best"]["test"] >= 0.95
    assert summary["status"] == "finished"


def test_every_file_of_the_run_tree_is_left(tmp_path: Path) -> None:
    finished = RunDirectory(train_sim(tmp_path, "train.num_epochs=3", "optimizer.learning_rate=2").path)
    files = """config.yaml config.json history.json runtime_state.json summary.json best_skill.md skills/skill_v0000.md
    skills/skill_v0001.md skills/best_skill.md patch_log.jsonl events.jsonl journal.sqlite review/conflicts.jsonl
    steps/step_0001/trajectories.jsonl steps/step_0001/trajectory_digest.json steps/step_0001/patches.json
    steps/step_0001/aggregate.json steps/step_0001/selected.json steps/step_0001/candidate_skill.md
    steps/step_0001/gate.json steps/step_0001/step_record.json slow_update/epoch_02/comparison.json
    slow_update/epoch_02/guidance.md slow_update/epoch_02/gate.json meta_skill/epoch_02/memory.md test_reads.jsonl"""
    assert [name for name in files.split() if not (finished.root / name).is_file()] == []


def test_each_step_leaves_the_skill_in_force_after_it(tmp_path: Path) -> None:
    finished = RunDirectory(train_sim(tmp_path, "train.seed=1").path)  # one of its steps is rejected
    records = read_json(finished.history)
    assert {record["verdict"] for record in records} >= {"accept", "reject"}
    for record in records:
        assert finished.step_skill(record["step"]).read_text() == finished.read_skill(record["version"]).text
    assert len(list(finished.skills.glob("step_*.md"))) == len(records)


@pytest.mark.slow
def test_one_trajectory_a_letter_learns_as_much_as_a_whole_batch(tmp_path: Path, finished: RunDirectory) -> None:
    single = train_sim(tmp_path, "gradient.minibatch_size=1").summary
    assert single["best"]["test"] >= read_json(finished.summary)["best"]["test"] - 0.02
    assert single["calls"]["optimizer"] > read_json(finished.summary)["calls"]["optimizer"]


def test_the_history_has_the_acceptance_rate_of_each_step_and_so_far(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path, "train.seed=3", "train.num_epochs=1").path)
    accepted = proposed = 0
    for record in read_json(run.history):
        edits = record["edits"]
        accepted, proposed = accepted + edits["accepted"], proposed + edits["proposed"]
        assert record["acceptance"] == {"step": edits["accepted"] / edits["proposed"], "so_far": accepted / proposed}
    assert 0 < accepted < proposed
    assert record["acceptance"]["so_far"] == read_json(run.summary)["edit_acceptance_rate"]


def test_a_step_record_holds_what_the_contract_names(finished: RunDirectory) -> None:
    record = read_json(finished.step(1) / "step_record.json")
    assert {
        "step",
        "epoch",
        "train_score",
        "val_before",
        "val_after",
        "verdict",
        "evidence",
        "version",
    } <= record.keys()
    assert {"scheduled", "used"} == record["learning_rate"].keys()
    assert {"proposed", "merged", "conflicting", "selected", "applied"} <= record["edits"].keys()
    assert record["skill_tokens"] > 0
    assert {"rollout", "reflect", "gate"} <= record["telemetry"]["seconds"].keys()
    assert record["telemetry"]["paid_so_far"]["target"]["calls"] > 0


def test_the_summary_holds_what_the_contract_names(finished: RunDirectory) -> None:
    summary = read_json(finished.summary)
    names = """status benchmark seed initial best calls tokens cost_usd rollouts_to_best edit_acceptance_rate
    persistent_failures steps gate seconds"""
    assert set(names.split()) <= summary.keys()
    assert {"val", "test", "step", "version", "tokens"} <= summary["best"].keys()
    assert {"target", "optimizer", "from_journal"} <= summary["calls"].keys()
    assert {"run", "accepted", "rejected", "skipped"} <= summary["steps"].keys()
    assert 0 < summary["rollouts_to_best"] <= summary["calls"]["target"]


def test_the_log_alone_rebuilds_every_version(finished: RunDirectory) -> None:
    entries = list(finished.patch_log.entries())
    versions = replay(finished.read_skill(0), entries)
    snapshots = sorted(finished.skills.glob("skill_v*.md"))
    assert len(versions) == len(snapshots) > 3
    for version, skill in versions.items():
        assert finished.snapshot(version).read_bytes() == skill.text.encode()
    assert all(entry.edit.trajectory_ids and entry.step for entry in entries)


def test_every_trajectory_has_its_score_messages_and_skill(finished: RunDirectory) -> None:
    rows = read_jsonl(finished.step(1) / "trajectories.jsonl")
    assert rows
    for row in rows:
        assert row["skill_hash"] == finished.read_skill(0).hash
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        assert row["score"]["hard"] in {0.0, 1.0}


def test_the_test_split_is_read_once(finished: RunDirectory) -> None:
    assert [read["who"] for read in read_jsonl(finished.test_reads)] == ["train"]


def test_no_analyst_ever_sees_validation_or_test_items(tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.35")
    train_sim(tmp_path, "train.num_epochs=2", models={"optimizer": spy})
    shown = "\n".join(str(m["content"]) for request in spy.requests for m in request.messages)
    assert "Train ticket" in shown
    assert "Val ticket" not in shown
    assert "Test ticket" not in shown


def test_same_seed_same_bytes_at_any_width(finished: RunDirectory, tmp_path: Path) -> None:
    narrow = train_sim(tmp_path, "hardware.workers=1", "gradient.analyst_workers=1")
    assert differing(essence(finished), essence(RunDirectory(narrow.path))) == []


def test_another_seed_gives_other_batches(finished: RunDirectory, tmp_path: Path) -> None:
    other = RunDirectory(train_sim(tmp_path, "train.seed=7", "train.num_epochs=1").path)
    first = [row["item_id"] for row in read_jsonl(finished.step(1) / "trajectories.jsonl")]
    assert first != [row["item_id"] for row in read_jsonl(other.step(1) / "trajectories.jsonl")]


def test_over_http_with_jitter_the_run_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    here = train_sim(tmp_path / "here", *SMALL)
    with sim_server(SimOptions(duds=0.35, latency=0.002, jitter=3)) as (server, url):
        remote = train_sim(tmp_path / "remote", *over_http(url), *SMALL)
    assert server.requests.total() > 50
    assert differing(essence(RunDirectory(here.path)), essence(RunDirectory(remote.path))) == []


WEATHER = SimOptions(duds=0.35, server_error=0.02, rate_limit=0.02, retry_after=0.05, hang=0.01)


@pytest.mark.usefixtures("virtual_time")
def test_bad_weather_changes_neither_skill_nor_scores(finished: RunDirectory, tmp_path: Path) -> None:
    models: dict[str, ChatModel] = {role: SimulatedModel("sim:world", WEATHER) for role in ("target", "optimizer")}
    rough = train_sim(tmp_path, models=models)
    assert sum(model.calls for model in models.values()) > 1.03 * rough.summary["calls"]["target"]  # type: ignore[attr-defined]
    assert differing(essence(finished), essence(RunDirectory(rough.path))) == []


@pytest.mark.slow
def test_bad_weather_over_http_changes_neither_skill_nor_scores(finished: RunDirectory, tmp_path: Path) -> None:
    with sim_server(WEATHER) as (_, url):
        remote = train_sim(tmp_path, *over_http(url), "hardware.call_timeout=0.5")
    assert differing(essence(finished), essence(RunDirectory(remote.path))) == []


def test_lost_replies_are_counted_and_the_run_goes_on(tmp_path: Path) -> None:
    faulty = "models.optimizer_model=sim:world?cut_off=0.4&malformed=0.4"
    result = train_sim(tmp_path, faulty, "gradient.minibatch_size=2")
    history = read_json(RunDirectory(result.path).history)
    assert sum(len(record["edits"]["lost_replies"]) for record in history) > 0
    assert result.summary["best"]["val"] > 0.5


def test_two_trainings_run_in_one_process_without_touching_each_other(tmp_path: Path) -> None:
    import asyncio

    from skillopt.config import Config
    from skillopt.training.trainer import TrainingLoop

    async def both() -> list[str]:
        runs = []
        for number in (1, 2):
            config = Config.load(SIM, [f"env.output_root={tmp_path / str(number)}", *SMALL])
            runs.append(TrainingLoop(config).fit())
        return [result.best_skill.hash for result in await asyncio.gather(*runs)]

    first, second = asyncio.run(both())
    assert first == second


def test_the_command_leaves_a_report_and_runs_nothing_twice(tmp_path: Path) -> None:
    """What it prints is in tests/data/cli/train.txt."""
    command = ("train", "--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}", *SMALL)
    assert skillopt(*command).returncode == 0
    run = only_run(tmp_path)
    assert run.report.is_file()
    assert (run.plots / "progress.svg").is_file()
    assert skillopt(*command).returncode == 0
    assert only_run(tmp_path).root == run.root
    assert len(read_jsonl(run.test_reads)) == 1


@pytest.mark.slow
def test_the_guides_scripts_train_and_evaluate(tmp_path: Path) -> None:
    import subprocess
    import sys

    def script(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=SCRIPTS.parent
        )
        return done.stdout

    out = f"env.output_root={tmp_path}"
    script("scripts/train.py", "--config", "configs/sim/default.yaml", out, "train.num_epochs=1")
    best = only_run(tmp_path).best_skill
    for split, size in (("val", 40), ("test", 60)):
        told = script(
            "scripts/eval_only.py", "--config", "configs/sim/default.yaml", "--skill", str(best), "--split", split, out
        )
        assert f"on {size} {split} items" in told
    assert len(read_jsonl(only_run(tmp_path).test_reads)) == 2
    summaries = list((tmp_path / "evaluations" / "sim").glob("*/eval_summary.json"))
    assert {read_json(path)["split"] for path in summaries} == {"val", "test"}


SCRIPTS = REPO / "scripts"


@pytest.mark.parametrize(("text", "kind", "val"), [("", "empty", 0.0), ("# A seed\n", "seed", 0.0)])
def test_starting_points(tmp_path: Path, text: str, kind: str, val: float) -> None:
    skill = tmp_path / "skill.md"
    skill.write_text(text)
    result = train_sim(tmp_path / "out", f"train.init_skill={skill}", "train.num_epochs=1")
    assert result.summary["initial"]["kind"] == kind
    assert result.summary["initial"]["val"] == val
    assert result.summary["best"]["val"] > val


def test_a_pretrained_skill_is_measured_zero_shot_and_reported(finished: RunDirectory, tmp_path: Path) -> None:
    done = skillopt(
        "train", "--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}",
        f"train.init_skill={finished.best_skill}", "train.num_epochs=1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    summary = read_json(run.summary)
    assert summary["initial"]["kind"] == "pretrained"
    assert summary["initial"]["val"] == 1.0
    assert "pretrained" in run.report.read_text()
    assert run.best_skill.read_bytes() == finished.best_skill.read_bytes()
