"""Floors: what no gain may buy back, in verdict, history, report and console; a resumed run decides the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skillopt.config import Config
from skillopt.errors import Stopped, UserError
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, JsonObject, Usage
from skillopt.models.bound import BoundChat
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import Journal
from skillopt.record.run import Run
from skillopt.view.html import write_report
from support import SIM, skillopt, train_short
from support.calls import caller

SMALL = ("train.num_epochs=1", "train.batch_size=24", "optimizer.lr_scheduler=constant", "evaluation.baselines=false")


def test_a_candidate_that_breaks_a_floor_is_rejected_by_its_name_everywhere(tmp_path: Path) -> None:
    result = train_short(tmp_path, *SMALL, "evaluation.floors={tokens: 60}")
    history = Run(RunDirectory(result.path)).history
    reasons = [record.evidence.reason for record in history if record.evidence.reason]
    assert reasons
    assert all(reason.startswith("floor tokens: ") and "is above 60" in reason for reason in reasons)
    assert not any(record.verdict == "accept" and record.skill_tokens > 60 for record in history)
    gate = read_json(result.path / "steps" / f"step_{_first(history):04d}" / "gate.json")
    assert (gate["decision"], gate["known_scores"]) == ("reject", {})
    assert gate["after"] > gate["before"]
    write_report(RunDirectory(result.path))
    assert "floor tokens: " in (result.path / "report.html").read_text()
    assert "floor tokens: " in (result.path / "report.md").read_text()
    assert "candidates scored higher but broke a floor (floor tokens: " in result.summary.verdict
    shown = skillopt("report", str(result.path)).stdout
    assert "broke a floor (floor tokens: " in shown


def _first(history: list) -> int:
    return next(record.step for record in history if record.evidence.reason)


@pytest.mark.parametrize("floor", ["tokens: 100000", "turns: 1", "refusals: 0", "fall: 1", "cost: 0", "seconds: 60"])
def test_a_floor_that_holds_changes_nothing(tmp_path: Path, floor: str) -> None:
    plain = train_short(tmp_path / "a", *SMALL).summary
    floored = train_short(tmp_path / "b", *SMALL, f"evaluation.floors={{{floor}}}").summary
    assert (plain.steps, plain.best) == (floored.steps, floored.best)


@pytest.mark.parametrize(
    ("floors", "said"),
    [
        ("{length: 5}", "unknown floor 'length'; known are: type:NAME, fall, refusals, cost, tokens, turns, seconds"),
        ("{type: 0.5}", "unknown floor 'type'"),
        ("{tokens: true}", "tokens: is not a number"),
        ("{seconds: -1}", "seconds: -1 is out of range"),
        ("{refusals: 2}", "refusals: 2 is out of range"),
    ],
)
def test_a_floor_that_cannot_be_is_refused(floors: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Config.load(SIM, [f"evaluation.floors={floors}"])


def test_a_floor_on_seconds_rejects_what_takes_longer(tmp_path: Path) -> None:
    result = train_short(tmp_path, *SMALL, "evaluation.floors={seconds: 0}")
    reasons = [record.evidence.reason for record in Run(RunDirectory(result.path)).history if record.evidence.reason]
    assert reasons
    assert all(reason.startswith("floor seconds: ") and reason.endswith("is above 0") for reason in reasons)


class Slow(ChatModel):
    name = endpoint = "openai:slow"

    async def chat(self, request: ChatRequest) -> ChatReply:
        await asyncio.sleep(0.05)
        return ChatReply(text="yes", usage=Usage(prompt=7, completion=1))


@pytest.mark.parametrize("whole", [True, False])
def test_a_replay_has_the_tokens_and_seconds_of_the_calls_that_were_paid_for(tmp_path: Path, whole: bool) -> None:
    """For single calls, and for the whole rollout of an agent that calls the model."""

    async def work(chat: BoundChat) -> list[dict[str, float]]:
        async def rollout() -> JsonObject:
            return {"output": (await chat([{"role": "user", "content": "hello"}])).text}

        await (chat.opaque_rollout(["agent"], rollout) if whole else rollout())
        return chat.calls

    async def twice() -> list[list[dict[str, float]]]:
        with Journal(tmp_path / "journal.sqlite") as journal:
            call = caller(Slow(), 2, journal)
            return [await work(BoundChat(call, label="x", stage="rollout")) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first == second
    assert (len(first), first[0]["prompt"]) == (1, 7)
    assert first[0]["seconds"] >= 0.05


def test_a_type_that_no_task_has_and_a_price_that_is_unknown_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"evaluation\.floors: type:nothing: no validation task has this type"):
        train_short(tmp_path, *SMALL, 'evaluation.floors={"type:nothing": 0.5}')
    unpriced = ["models.target_model=vllm:x", "hardware.vllm_url=http://127.0.0.1:9/v1"]
    with pytest.raises(UserError, match=r"evaluation\.floors: cost: the price of 'vllm:x' is unknown"):
        train_short(tmp_path, *SMALL, *unpriced, "evaluation.floors={cost: 0.5}")


def test_the_former_key_is_a_floor_now_and_says_so() -> None:
    with pytest.warns(FutureWarning, match=r"evaluation.regression_margin is now evaluation.floors=\{fall: 0.1\}"):
        config = Config.load(SIM, ["evaluation.regression_margin=0.1"])
    assert config.evaluation.floors == {"fall": 0.1}
    assert Config.parse({"evaluation": {"regression_margin": None}}) == Config()


def test_a_run_that_was_stopped_decides_the_same_when_it_is_resumed(tmp_path: Path) -> None:
    settings = (*SMALL, "evaluation.floors={tokens: 60, cost: 1}")
    whole = train_short(tmp_path / "whole", *settings)
    with pytest.raises(Stopped):
        train_short(tmp_path / "cut", *settings, "budget.max_calls=110")
    resumed = train_short(tmp_path / "cut", *settings)
    first, second = (Run(RunDirectory(each.path)).history for each in (whole, resumed))
    assert [record.evidence for record in first] == [record.evidence for record in second]
    assert any(record.evidence.reason for record in second)
