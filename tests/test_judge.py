"""A model as the scorer: its calls are journalled and counted, its noise is known, its reasons reach the analysts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.envs import open_env
from skillopt.envs.sim import SimEnv
from skillopt.errors import Stopped, UserError
from skillopt.loop.trainer import TrainingLoop
from skillopt.measure.evaluate import evaluate
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.preflight.plan import plan_run
from skillopt.run.files import read_json, read_jsonl
from skillopt.skill import Skill


class Target:
    name = endpoint = "target"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text="a good answer" if "good" in str(request.messages[0]["content"]) else "a bad answer")

    async def close(self) -> None:
        return


class Optimizer:
    """Judges by a word of the answer; as an analyst it proposes the rule that works, if it is told the reason."""

    name = endpoint = "judge"
    deterministic = False

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.judged: list[dict[str, Any]] = []
        self.read: list[str] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        assert request.schema is not None
        text = str(request.messages[1]["content"])
        if request.schema.name == "judge":
            lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
            self.judged.append(lines)
            good = "good" in json.loads(lines["answer"])
            verdict = {"reason": "good" if good else "it is not friendly enough", "score": 4 if good else 1}
            return ChatReply(text="no idea" if self.broken else json.dumps(verdict))
        self.read.append(text)
        ids = request.schema.body["properties"]["patterns"]["items"]["properties"]["trajectory_ids"]["items"]["enum"]
        edit = {"op": "add", "section": "Tone", "anchor": "", "text": "Give good answers.", "rationale": "r"}
        more = {"pattern": "tone", "trajectory_ids": ids[:1], "impact": 1}
        return ChatReply(text=json.dumps({"patterns": [], "edits": [{**edit, **more}]}))

    async def close(self) -> None:
        return


@pytest.fixture
def config(tmp_path: Path) -> Config:
    rows = [{"id": f"q{n}", "question": f"Answer letter {n}."} for n in range(15)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Config.parse(
        {
            "train": {"num_epochs": 1, "batch_size": 5},
            "optimizer": {"use_meta_skill": False},
            "env": {
                "data": str(tmp_path / "tasks.jsonl"),
                "split": {"train": 1, "val": 1, "test": 1},
                "scoring": "judge",
                "scoring_options": {"rubric": "It must be friendly."},
                "output_root": str(tmp_path / "out"),
            },
        }
    )


def test_a_training_learns_from_a_judge_whose_reasons_reach_the_analysts(config: Config) -> None:
    optimizer = Optimizer()
    result = asyncio.run(TrainingLoop(config, models={"target": Target(), "optimizer": optimizer}).fit())
    summary = result.summary
    assert (summary["initial"]["test"], summary["best"]["test"]) == (0, 1)
    assert "it is not friendly enough" in optimizer.read[0]
    assert optimizer.judged[0]["rubric"] == '"It must be friendly."'
    assert "reference_answers" not in optimizer.judged[0]
    first = read_jsonl(result.path / "steps" / "step_0001" / "trajectories.jsonl")[0]
    assert first["score"] == {"hard": 0, "soft": 0.25, "feedback": "it is not friendly enough"}
    assert summary["calls_by_stage"]["optimizer"]["judge"] == len(optimizer.judged)
    assert summary["best"]["val_remeasured"] == 1  # a noisy score is measured again
    gate = read_json(result.path / "steps" / "step_0001" / "gate.json")
    assert gate["repeats"] > 0  # the paired gate took fresh samples although the target is deterministic


def test_an_evaluation_asks_the_judge_once_for_each_item_and_never_again(config: Config) -> None:
    models: dict[str, Any] = {"target": Target(), "optimizer": Optimizer()}
    first = asyncio.run(evaluate(config, Skill("Give good answers."), split="test", models=models))
    again = asyncio.run(evaluate(config, Skill("Give good answers."), split="test", models=models))
    assert first["hard"] == again["hard"] == 1
    assert len(models["optimizer"].judged) == 5
    assert first["majority"] is None
    assert first["do_nothing"] is None


def test_a_judge_that_gives_no_verdict_is_no_wrong_answer(config: Config) -> None:
    models: dict[str, Any] = {"target": Target(), "optimizer": Optimizer(broken=True)}
    with pytest.raises(Stopped, match=r"5 of 5 items cannot be measured; the last reason: judge: it is not valid JSON"):
        asyncio.run(evaluate(config, Skill(""), split="test", models=models))


def test_an_env_that_says_it_is_noisy_does_not_take_the_strict_gate(tmp_path: Path) -> None:
    class Dice(SimEnv):
        noisy = True

    config = Config.parse(
        {
            "env": {"name": "sim", "output_root": str(tmp_path)},
            "models": {"target_model": "sim:world"},
            "evaluation": {"gate": "strict"},
        }
    )
    with pytest.raises(UserError, match=r"its scores are noisy.*set evaluation\.gate to paired"):
        asyncio.run(TrainingLoop(config, env=Dice(config.env)).fit())


def test_the_plan_counts_the_judges_calls(config: Config) -> None:
    plan = plan_run(config, open_env(config), Skill(""))
    (line,) = [line for line in plan.lines if line.stage == "judge"]
    assert line.role == "optimizer"
    assert line.calls[0] == plan.calls("target")[0]
