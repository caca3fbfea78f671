"""Every advertised mechanism does its work, and its test goes red when it is unplugged in the code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.models.structured import CheckedReply
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.sim.optimizer import rules_in
from skillopt.skill import Applied, Edit, SizeLimits, Skill
from skillopt.training import epoch_end, reflect, step_files, trainer
from skillopt.training.edits import aggregate, select
from skillopt.training.requests import guidance
from skillopt.training.requests.compose import IN_PENDING, NO_LONGER_PENDING, UNDONE
from support import Spy, train_short

Check = Callable[[Path], None]
DUDS = "sim:world?duds=1"
"""An optimizer whose edits are never of use: every gate turns them down."""


SLOW = ("train.num_epochs=2", "optimizer.learning_rate=2", "models.optimizer_model=sim:world")
"""So few edits that the second epoch ends with rules still missing: there is something to give guidance about."""


def check_slow_update(out: Path) -> None:
    """Guidance of the slow update is in the skill, and in the log like any edit."""
    run = RunDirectory(train_short(out, *SLOW).path)
    comparison = read_json(run.slow_update(2) / "comparison.json")
    assert comparison["counts"]["improved"] > 0
    assert {row["class_"] for row in comparison["rows"]} <= {
        "improved",
        "regressed",
        "persistent_fail",
        "stable_success",
    }
    assert run.read_skill(0).guidance == ""
    assert rules_in(run.read_skill(read_json(run.state)["best"]["version"]).guidance)
    assert [entry.kind for entry in run.patch_log.entries()][-1] == "guidance"


FOUR = ("train.num_epochs=4", "train.seed=2", "optimizer.learning_rate=2", "models.optimizer_model=sim:world?duds=0.5")


def check_earlier_guidance(out: Path) -> None:
    """Over four epochs guidance is accepted more than once, and what earlier guidance says and won stays."""
    run = RunDirectory(train_short(out, *FOUR).path)
    entries = [entry for entry in run.patch_log.entries() if entry.kind == "guidance"]
    assert len({entry.epoch for entry in entries}) > 1
    lines = run.read_skill(read_json(run.state)["best"]["version"]).guidance.splitlines()
    assert lines == [entry.edit.text for entry in entries]
    won: set[str] = set()
    for epoch in sorted({entry.epoch for entry in entries}):
        evidence = read_json(run.slow_update(epoch) / "gate.json")["evidence"]
        assert not [row["item_id"] for row in evidence if row["item_id"] in won and row["after"] < 1]
        won |= {row["item_id"] for row in evidence if row["after"] > row["before"]}
    assert won == set(read_json(run.state)["guidance_won"])


def check_meta_skill(out: Path) -> None:
    """Notes of the first epoch reach the second epoch's reflection, and never the skill."""
    spy = Spy(DUDS)
    result = train_short(out, "train.num_epochs=2", models={"optimizer": spy})
    reflections = spy.asked("reflect")
    assert "<notes>" not in reflections[0]
    assert "general advice was of no use" in reflections[-1].partition("<notes>")[2].partition("</notes>")[0]
    assert "general advice" in (RunDirectory(result.path).meta_skill(1) / "memory.md").read_text()
    assert "general advice" not in result.best_skill.text


def check_history(out: Path) -> None:
    """What a gate rejected is shown to later reflection, with its fate."""
    spy = Spy(DUDS)
    result = train_short(out, "train.num_epochs=1", models={"optimizer": spy})
    first = read_json(RunDirectory(result.path).history)[0]
    assert first["verdict"] == "reject"
    reflections = spy.asked("reflect")
    assert "<history>" not in reflections[0]
    history = reflections[-1].partition("<history>\n")[2].partition("\n</history>")[0]
    shown = json.loads(history.splitlines()[0])
    assert (shown["step"], shown["verdict"]) == (1, "reject")
    assert shown["validation"].startswith(f"{first['val_before']:.2f} → ")
    tried = [edit["text"] for edit in shown["edits"] if edit["fate"] in {IN_PENDING, NO_LONGER_PENDING, UNDONE}]
    assert tried == [edit["text"] for edit in first["applied"]]


def check_rejected_buffer(out: Path) -> None:
    """The exemplar analyst does not propose an edit again that a gate rejected."""
    every_step_the_same = ("env.options={rules: 8, train: 12, val: 12, test: 4}", "train.batch_size=12")
    options = ("train.num_epochs=2", "gradient.analysts=[exemplar]")
    run = RunDirectory(train_short(out, *every_step_the_same, *options).path)
    rejected: set[str] = set()
    for record in read_json(run.history):
        (patch,) = read_json(run.step(record["step"]) / "patches.json")
        assert not rejected & {edit["text"] for edit in patch["edits"]}
        rejected |= {edit["text"] for edit in record["applied"] if record["verdict"] == "reject"}
    assert rejected


def check_reject_decay(out: Path) -> None:
    """A rejected step restores the skill and lowers the rate of the next."""
    result = train_short(out, "train.num_epochs=1", "optimizer.learning_rate=8", "models.optimizer_model=" + DUDS)
    first, second = read_json(RunDirectory(result.path).history)[:2]
    assert first["verdict"] == "reject"
    assert first["version"] == 0
    assert result.best_skill.text == RunDirectory(result.path).read_skill(0).text
    assert second["learning_rate"]["used"] == pytest.approx(0.8 * second["learning_rate"]["scheduled"])


def check_patience(out: Path) -> None:
    """So many steps without improvement end the run."""
    result = train_short(out, "models.optimizer_model=" + DUDS, "train.patience=3", "train.num_epochs=1")
    assert result.summary["steps"]["run"] == 3
    assert result.summary["stop_reason"] == "no improvement in 3 steps"
    assert result.summary["best"]["test"] is not None


def check_clipping(out: Path) -> None:
    """No more edits than the learning rate are selected, and the document stays below its cap."""
    limits = ("optimizer.learning_rate=3", "optimizer.min_learning_rate=1", "optimizer.max_skill_tokens=100")
    heedless = ("models.optimizer_model=sim:world?paraphrase=1", "gradient.minibatch_size=4")
    result = train_short(out, "train.num_epochs=1", *limits, *heedless)
    history = read_json(RunDirectory(result.path).history)
    assert max(record["edits"]["proposed"] for record in history) > 6
    assert all(record["edits"]["selected"] <= round(record["learning_rate"]["used"]) for record in history)
    assert all(record["candidate_tokens"] <= 100 for record in history)
    assert any(record["edits"]["dropped"].get("skill_too_long") for record in history)


def check_gate(out: Path) -> None:
    """A candidate that does not improve is not accepted."""
    result = train_short(out, "train.num_epochs=1", "models.optimizer_model=" + DUDS)
    assert result.summary["steps"]["accepted"] == 0
    assert result.summary["best"]["version"] == 0


def check_deep_reflection(out: Path) -> None:
    """A cause that many failures share and no edit answers is looked into across all of them, once."""
    spy = Spy()
    planted = "env.options={rules: 20, train: 48, val: 40, test: 20, systemic: 0.4}"
    train_short(out, "train.num_epochs=1", planted, models={"optimizer": spy})
    asked = spy.asked("deep_reflect")
    assert len(asked) == 1
    assert 'Cause to look into: "sealed tickets are left open"' in asked[0]
    assert asked[0].count("It is sealed") > 2


def check_merge(out: Path) -> None:
    """Each idea in three wordings, from each of several letters, takes one place."""
    few = ("optimizer.learning_rate=8", "gradient.minibatch_size=3", "gradient.edits_per_minibatch=64")
    result = train_short(out, "train.num_epochs=1", *few, "models.optimizer_model=sim:world?paraphrase=1")
    run = RunDirectory(result.path)
    pool = read_json(run.step(1) / "aggregate.json")
    wordings = [rules_in(row["edit"]["text"]).popitem() for row in pool["edits"]]
    assert len(wordings) == len(set(wordings)) < pool["proposed"] / 3
    lines = [line for line in run.best_skill.read_text().splitlines() if rules_in(line)]
    assert len(lines) == len(rules_in(run.best_skill.read_text()))


def check_select(out: Path) -> None:
    """Without a merger, too, no two wordings of one idea are selected while another idea waits."""
    result = train_short(
        out, "train.num_epochs=1", "optimizer.learning_rate=8", "gradient.merge=local", "gradient.minibatch_size=3",
        "gradient.edits_per_minibatch=64", "models.optimizer_model=sim:world?paraphrase=1",
    )  # fmt: skip
    for record in read_json(RunDirectory(result.path).history):
        ranked = read_json(RunDirectory(result.path).step(record["step"]) / "selected.json")["ranked"]
        ideas = {row["edit"]["pattern"] for row in ranked}
        chosen = [row["edit"]["pattern"] for row in ranked if row["selected"]]
        assert len(set(chosen)) == min(len(ideas), len(chosen))


CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


@pytest.mark.parametrize("mechanism", CHECKS)
def test_the_mechanism_works(mechanism: str, tmp_path: Path) -> None:
    CHECKS[mechanism](tmp_path)


def unplug_slow_update(patch: pytest.MonkeyPatch) -> None:
    async def nothing(state: Any, before: Any, after: Any, *args: Any) -> tuple[Any, None]:
        return after, None

    patch.setattr(epoch_end, "_slow_update", nothing)


def unplug_earlier_guidance(patch: pytest.MonkeyPatch) -> None:
    """Each guidance replaces the one before."""

    def overwrite(skill: Skill, edits: Sequence[Edit], limits: SizeLimits) -> Applied:
        text = "\n".join(edit.text for edit in edits)
        return Applied(skill=skill.with_guidance(text) if text else skill, applied=tuple(edits))

    patch.setattr(guidance, "apply_guidance", overwrite)


def unplug_meta_skill(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*args: Any) -> CheckedReply[str]:
        return CheckedReply(lost="unplugged")

    patch.setattr(epoch_end, "meta_skill", nothing)


def unplug_history(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trainer, "remember", lambda *args: None)


def unplug_rejected_buffer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_files, "record_rejections", lambda *args: None)
    patch.setattr(step_files, "carried", lambda *args: ())  # pending edits are not proposed again either


def unplug_reject_decay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trainer, "decayed_rate", lambda scheduled, decay, config: scheduled)


def unplug_patience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trainer.TrainingLoop, "_over", lambda self: "")


def unplug_clipping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(select, "edits_for", lambda rate: 1000)


def unplug_gate(patch: pytest.MonkeyPatch) -> None:
    from skillopt.training.gates import strict as gate

    patch.setattr(gate.EarlyStop, "beaten", lambda self, shown: False)


def unplug_deep_reflection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reflect, "deep_minibatches", lambda *args: [])


def unplug_merge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aggregate, "_replaced", lambda pooled, rows, skill, ctx: (list(pooled), []))


def unplug_select(patch: pytest.MonkeyPatch) -> None:
    """Only support counts, as if every edit were the first."""
    relevance = select.relevance
    patch.setattr(select, "relevance", lambda pooled, taken, covered: relevance(pooled, (), {}))


@pytest.mark.parametrize("mechanism", CHECKS)
def test_its_check_goes_red_when_it_is_unplugged(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    globals()[f"unplug_{mechanism}"](monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError, FileNotFoundError)):
        CHECKS[mechanism](tmp_path)


def test_optimizer_requests_carry_a_schema_named_after_their_stage(tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.35")
    train_short(tmp_path, "train.num_epochs=2", "optimizer.learning_rate=2", models={"optimizer": spy})
    stages = {request.schema.name for request in spy.requests if request.schema}
    assert {"reflect", "slow_update", "meta_skill"} <= stages
    for request in spy.requests:
        assert request.schema
        if "reflect" in request.schema.name:
            edit = request.schema.body["properties"]["edits"]["items"]["properties"]
            assert edit["op"]["enum"] == ["add", "modify", "delete"]
            shown = str(request.messages[-1]["content"])
            assert all(f'"id": "{tid}"' in shown for tid in edit["trajectory_ids"]["items"]["enum"])


class Refusing(Spy):
    """A target whose endpoint refuses one item for its own sake, and fails another for ever."""

    def __init__(self, refused: str = "", broken: str = "") -> None:
        super().__init__()
        self.refused, self.broken = refused, broken

    async def chat(self, request: ChatRequest) -> ChatReply:
        from skillopt.models.base import RefusedError, TransientError

        task = str(request.messages[-1]["content"])
        if self.refused and self.refused in task:
            raise RefusedError("content filter")
        if self.broken and self.broken in task:
            raise TransientError("500: broken")
        return await super().chat(request)


def test_an_item_that_the_endpoint_refuses_is_set_aside_for_every_skill(tmp_path: Path) -> None:
    result = train_short(tmp_path, models={"target": Refusing(refused="Val ticket 3.")})
    assert list(result.summary["set_aside"]) == ["val-003"]
    assert result.summary["best"]["val"] == 1.0


def test_a_training_rollout_that_fails_has_no_score_and_enters_no_mean(tmp_path: Path) -> None:
    target = Refusing(broken="Train ticket 3.")
    result = train_short(tmp_path, "hardware.max_retries=0", "train.num_epochs=1", models={"target": target})
    records = read_json(RunDirectory(result.path).history)
    assert [record["rollout_errors"] for record in records].count(1) == 1
    assert result.summary["best"]["val"] > result.summary["initial"]["val"]


def test_a_gate_that_cannot_measure_its_split_does_not_decide(tmp_path: Path) -> None:
    from skillopt.errors import Stopped

    target = Refusing()

    async def fails_in_the_gate(request: ChatRequest) -> ChatReply:
        if len(target.requests) > 60:
            target.broken = "Val ticket"
        return await Refusing.chat(target, request)

    target.chat = fails_in_the_gate  # type: ignore[method-assign]
    with pytest.raises(Stopped, match="nothing was decided"):
        train_short(tmp_path, "train.num_epochs=1", "hardware.max_retries=0", models={"target": target})
    healed = train_short(tmp_path, "train.num_epochs=1")
    undisturbed = train_short(tmp_path / "other", "train.num_epochs=1")
    assert healed.best_skill == undisturbed.best_skill
