"""A model as the scorer: its calls are journalled and counted, its noise is known, its reasons reach the analysts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import Stopped, UserError
from skillopt.measure.evaluate import evaluate
from skillopt.preflight.plan import plan_run
from skillopt.record.files import read_json, read_jsonl
from skillopt.sim.env import SimEnv
from skillopt.skill import Skill
from skillopt.tasks import open_env
from skillopt.tasks.base import Env, Episode, Item, Score
from skillopt.tasks.judge import judged
from skillopt.training.trainer import TrainingLoop
from support.judge import Optimizer, Target, judge_config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return judge_config(tmp_path)


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


class Letters(Env):
    """An env of the user's own whose outputs only a model can score."""

    name = "letters"

    def items(self, split: str) -> list[Item]:
        start = {"train": 0, "val": 10, "test": 20}[split]
        return [Item(id=f"{split}{n}", question=f"Answer letter {start + n}.", answers=("hello",)) for n in range(5)]

    async def run(self, item: Item, skill: Skill, chat: Any) -> Episode:
        messages = [{"role": "system", "content": skill.text}, {"role": "user", "content": item.question}]
        return Episode(messages=messages, output=(await chat(messages)).text)

    async def judge(self, item: Item, output: str, ask: Any) -> Score:  # type: ignore[override]
        return await judged(item, output, ask, rubric="It must be friendly.", pass_at=4)


@pytest.mark.parametrize("analysts", [["exemplar"], ["llm"]])
@pytest.mark.parametrize("noisy", [True, False])
def test_an_env_with_a_judge_of_its_own_has_the_optimizer_to_the_end(
    tmp_path: Path, analysts: list[str], noisy: bool
) -> None:
    env, optimizer = Letters(), Optimizer()
    if noisy:
        env.noisy = True
    tree = {"optimizer": {"use_meta_skill": False}, "gradient": {"analysts": analysts}}
    config = Config.parse({**tree, "train": {"num_epochs": 1}, "env": {"output_root": str(tmp_path)}})
    loop = TrainingLoop(config, env=env, models={"target": Target(), "optimizer": optimizer})
    try:
        result = asyncio.run(loop.fit())
    except Exception as error:
        pytest.fail(f"after {len(optimizer.judged)} judgements the training ended with {error!r}")
    assert result.summary["status"] == "finished"
    assert optimizer.judged
    assert plan_run(config, env, Skill("")).calls("optimizer")[0] > 0


def test_an_env_with_a_judge_of_its_own_does_not_take_the_strict_gate(tmp_path: Path) -> None:
    config = Config.parse({"env": {"output_root": str(tmp_path)}, "evaluation": {"gate": "strict"}})
    models: dict[str, Any] = {"target": Target(), "optimizer": Optimizer()}
    with pytest.raises(Exception) as caught:  # noqa: PT011
        asyncio.run(TrainingLoop(config, env=Letters(), models=models).fit())
    assert "its scores are noisy" in str(caught.value)


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
