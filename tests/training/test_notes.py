"""The meta skill's notes after every epoch, the comparison of every finished epoch, and notes for another training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from skillopt.errors import UserError
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.state import State
from skillopt.sim.model import TOPICS, code_for
from skillopt.training import epoch_end
from support import SIM, SMALL, Spy, skillopt, train_short, train_sim

DUDS = "sim:world?duds=1"
"""An optimizer whose edits are never of use."""
NOTED = [each for each in SMALL if "meta_skill" not in each]
"""A training of a few steps that writes notes."""


def memory(run: RunDirectory, epoch: int) -> str:
    return (run.meta_skill(epoch) / "memory.md").read_text()


@pytest.mark.parametrize("epochs", [1, 3])
def test_every_epoch_leaves_notes_the_last_one_too(epochs: int, tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.5")
    few = (f"train.num_epochs={epochs}", "optimizer.learning_rate=2")
    run = RunDirectory(train_short(tmp_path, *few, models={"optimizer": spy}).path)
    assert sorted(path.name for path in (run.root / "meta_skill").iterdir()) == [
        f"epoch_{epoch:02d}" for epoch in range(1, epochs + 1)
    ]
    assert all("Last epoch: " in memory(run, epoch) for epoch in range(1, epochs + 1))
    assert memory(run, epochs).strip() == State.read(run.state).memory
    assert len(spy.asked("meta_skill")) == epochs


def test_notes_are_asked_for_with_the_two_skills_difference_and_the_comparison(tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.5")
    two = ("train.num_epochs=2", "optimizer.learning_rate=2")
    run = RunDirectory(train_short(tmp_path, *two, models={"optimizer": spy}).path)
    first, second = spy.asked("meta_skill")
    assert "+- For " in first.partition("<difference>")[2].partition("</difference>")[0]
    assert "<counts>" not in first, "the first epoch has none before it to compare with"
    counts = read_json(run.slow_update(2) / "comparison.json")["counts"]
    shown = dict(part.split() for part in second.partition("<counts>\n")[2].partition("\n</counts>")[0].split(", "))
    assert {name: int(count) for name, count in shown.items() if int(count)} == counts
    lines = second.partition("<comparison>\n")[2].partition("\n</comparison>")[0].splitlines()
    assert len(lines) == sum(counts.values()) - counts["stable_success"]
    assert json.loads(lines[0])["task"].startswith("Train ticket")


def test_a_finished_epoch_that_changed_nothing_has_a_comparison_and_notes(tmp_path: Path) -> None:
    run = RunDirectory(train_short(tmp_path, "train.num_epochs=3", f"models.optimizer_model={DUDS}").path)
    for epoch in (2, 3):
        comparison = read_json(run.slow_update(epoch) / "comparison.json")
        assert comparison["equal"]
        assert comparison["counts"] == {}
        assert comparison["lost"] == "both epochs ended with the same skill"
        assert "advice" in memory(run, epoch)


def test_a_run_that_ends_early_leaves_notes_and_no_comparison_of_the_epoch_that_it_did_not_finish(
    tmp_path: Path,
) -> None:
    early = ("train.num_epochs=3", "train.patience=6", f"models.optimizer_model={DUDS}")
    result = train_short(tmp_path, *early)
    run = RunDirectory(result.path)
    assert (result.summary["steps"]["run"], result.summary["stop_reason"]) == (6, "no improvement in 6 steps")
    assert [path.name for path in sorted((run.root / "meta_skill").iterdir())] == ["epoch_01", "epoch_02"]
    assert not (run.root / "slow_update").exists()
    assert read_json(run.history)[-1]["epoch_end"]["epoch"] == 2
    before = {path: path.read_bytes() for path in run.root.rglob("memory.md")}
    assert skillopt("verify", str(run.root)).returncode == 0
    again = train_short(tmp_path, *early)
    assert again.path == result.path
    assert {path: path.read_bytes() for path in run.root.rglob("memory.md")} == before


def test_patience_that_runs_out_with_an_epochs_last_step_ends_that_epoch_whole(tmp_path: Path) -> None:
    early = ("train.num_epochs=3", "train.patience=8", f"models.optimizer_model={DUDS}")
    run = RunDirectory(train_short(tmp_path, *early).path)
    assert State.read(run.state).step == 8
    assert read_json(run.slow_update(2) / "comparison.json")["equal"]
    assert not run.meta_skill(3).exists()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (("optimizer.use_meta_skill=false",), "optimizer.use_meta_skill is false"),
        (("gradient.analysts=[exemplar]", "models.optimizer_model=openai:none"), "this run has no optimizer model"),
    ],
)
def test_without_notes_the_file_says_why_and_nothing_is_asked(
    settings: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    run = RunDirectory(train_sim(tmp_path, *NOTED, *settings).path)
    assert memory(run, 1) == f"No notes: {why}.\n"
    assert State.read(run.state).memory == ""


def test_a_run_in_which_no_edit_was_tried_asks_for_no_notes(tmp_path: Path) -> None:
    skill, optimizer = tmp_path / "all.md", Spy()
    skill.write_text("".join(f"- For {topic}, answer {code_for(topic, 0)}.\n" for topic in TOPICS))
    run = RunDirectory(train_short(tmp_path, *NOTED, f"train.init_skill={skill}", models={"optimizer": optimizer}).path)
    assert memory(run, 1) == "No notes: no edit was tried.\n"
    assert not optimizer.requests


def test_a_lost_reply_keeps_the_notes_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_end, "LONGEST_MEMORY", 0)
    run = RunDirectory(train_sim(tmp_path, *NOTED).path)
    assert memory(run, 1) == "No notes: the optimizer's reply could not be used.\n"


def test_an_optimizer_that_writes_no_notes_is_not_said_to_have_written_some(tmp_path: Path) -> None:
    class Silent(Spy):
        async def chat(self, request: ChatRequest) -> ChatReply:
            reply = await super().chat(request)
            silent = request.schema and request.schema.name == "meta_skill"
            return ChatReply(text='{"memory": ""}', usage=reply.usage) if silent else reply

    run = RunDirectory(train_short(tmp_path, *NOTED, models={"optimizer": Silent()}).path)
    assert memory(run, 1) == "No notes: the optimizer wrote none.\n"
    (finished,) = (event for event in map(json.loads, run.events.read_text().splitlines()) if "meta" in event["kind"])
    assert finished["lost"] == "the optimizer wrote none"


# Notes for another training


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run whose notes hold a lesson."""
    out = tmp_path_factory.mktemp("noted")
    return RunDirectory(train_sim(out, *NOTED, f"models.optimizer_model={DUDS}").path)


def test_another_training_begins_with_a_runs_notes(noted: RunDirectory, tmp_path: Path) -> None:
    spy = Spy()
    notes = State.read(noted.state).memory
    assert "general advice was of no use" in notes
    train_sim(tmp_path, *SMALL, f"train.init_notes={noted.root}", models={"optimizer": spy})
    shown = spy.asked("reflect")[0].partition("<notes>\n")[2].partition("\n</notes>")[0]
    assert shown == notes


def test_notes_make_another_run_by_what_they_say_and_not_by_where_they_are(noted: RunDirectory, tmp_path: Path) -> None:
    copy = shutil.copytree(noted.root, tmp_path / "copy")
    without, here, there = (
        train_sim(tmp_path / "out", *SMALL, *more).path
        for more in ((), (f"train.init_notes={noted.root}",), (f"train.init_notes={copy}",))
    )
    assert here == there != without
    state = State.read(copy / "runtime_state.json")
    state.memory += "\n- One more."
    state.write(copy / "runtime_state.json")
    assert train_sim(tmp_path / "out", *SMALL, f"train.init_notes={copy}").path != here


def test_notes_that_cannot_be_read_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    empty = train_sim(tmp_path / "a", *SMALL).path
    (tmp_path / "nothing").mkdir()
    for folder, problem in ((empty, "has no notes; give a run"), (tmp_path / "nothing", "is not a run's folder")):
        given = ["--config", str(SIM), *SMALL, f"env.output_root={tmp_path / 'out'}", f"train.init_notes={folder}"]
        done = skillopt("train", *given)
        assert done.returncode == 2
        assert "train.init_notes: " in done.stderr
        assert problem in done.stderr
    broken = shutil.copytree(empty, tmp_path / "broken")
    (broken / "runtime_state.json").write_text("{")
    with pytest.raises(UserError, match=r"train.init_notes: .*cannot be read"):
        train_sim(tmp_path / "out", *SMALL, f"train.init_notes={broken}")
    assert not (tmp_path / "out").exists()


def test_a_transfer_trains_with_the_sources_notes(noted: RunDirectory, tmp_path: Path) -> None:
    goal = ["--to", str(SIM), *SMALL, f"env.output_root={tmp_path}", "train.seed=7"]
    done = skillopt("transfer", str(noted.root), *goal)
    assert done.returncode == 0, done.stderr
    (config,) = tmp_path.glob("sim/*/config.json")
    assert read_json(config)["train.init_notes"] == str(noted.root)
