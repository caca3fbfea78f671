"""A scorer that gives one output two scores is refused before anything is paid for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.sim.env import SimEnv
from skillopt.tasks.base import Score
from skillopt.training.trainer import TrainingLoop
from support import SIM, Spy, skillopt

RANDOM = "import random\n\ndef score(item, output):\n    return random.choice([0.0, 1.0])\n"


def own_tasks(folder: Path, scorer: str = RANDOM) -> list[str]:
    (folder / "scorer.py").write_text(scorer)
    rows = [{"question": f"How many are {n}?", "answer": str(n)} for n in range(24)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = [f"env.data={folder}/tasks.jsonl", f"env.scoring={folder}/scorer.py:score", "env.name=qa", "env.options={}"]
    return ["train", "--config", str(SIM), *env, f"env.output_root={folder}/out", "train.init_skill="]


@pytest.mark.parametrize("gate", ["strict", "paired"])
def test_a_random_scorer_ends_train_with_exit_code_2_and_nothing_is_written(tmp_path: Path, gate: str) -> None:
    done = skillopt(*own_tasks(tmp_path), f"evaluation.gate={gate}")
    assert done.returncode == 2, done.stderr
    assert "two different scores for one output" in done.stderr
    assert "declare the scorer noisy" in done.stderr
    assert not (tmp_path / "out").exists()


class Wavers(SimEnv):
    """Every second score of an output is another one."""

    calls = 0

    def score(self, item: Any, output: str) -> Score:
        self.calls += 1
        return Score(hard=self.calls % 2, soft=0)


def fit(env: SimEnv, config: Config, target: Spy) -> None:
    asyncio.run(TrainingLoop(config, env=env, models={"target": target, "optimizer": Spy()}).fit())


def test_no_model_is_asked_before_the_refusal_and_a_declared_scorer_is_not_tried(tmp_path: Path) -> None:
    config = Config.load(SIM, [f"env.output_root={tmp_path}", "budget.max_calls=1"])
    target, env = Spy(), Wavers(config.env)
    with pytest.raises(UserError, match="two different scores"):
        fit(env, config, target)
    assert target.requests == []
    env = Wavers(config.env)
    env.noisy, before = True, env.calls
    with pytest.raises(Exception, match="budget"):
        fit(env, config, target)
    assert env.calls - before <= 2, "one task was done, and no output was scored twice beforehand"
