"""One session serves every measurement outside of a training: it opens what that takes, and closes all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.ablate import ablate
from skillopt.measure.compare import compare
from skillopt.measure.evaluate import evaluate
from skillopt.measure.session import measuring_session
from skillopt.models.base import ChatReply, ChatRequest, FatalError
from skillopt.record.directory import RunDirectory
from skillopt.sim.env import SimEnv
from skillopt.skill import Skill
from skillopt.training.rollout import measure
from skillopt.training.trainer import TrainingLoop
from support import SIM, Spy, train_sim
from support.judge import Optimizer, Target, judge_config

SMALL = (
    "train.num_epochs=1",
    "optimizer.use_meta_skill=false",
    "env.options={rules: 6, train: 12, val: 12, test: 6}",
    "gradient.analysts=[exemplar]",
)
SKILL = Skill("- For maple, answer XX-11.\n")
Measurement = Callable[[Config, Path, SimEnv | None], Coroutine[Any, Any, Any]]


def sim_config(out: Path, *overrides: str) -> Config:
    return Config.load(SIM, [f"env.output_root={out}", *SMALL, *overrides])


MEASUREMENTS: dict[str, Measurement] = {
    "evaluate": lambda config, run, env: evaluate(config, SKILL, split="val", env=env),
    "compare": lambda config, run, env: compare(config, (SKILL, None), (Skill(""), None), env=env),
    "ablate": lambda config, run, env: ablate(RunDirectory(run), config, env=env),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_closes_the_env_that_it_opened_and_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_sim(tmp_path, *SMALL).path
    config = sim_config(tmp_path)
    closed: list[str] = []
    monkeypatch.setattr(SimEnv, "close", lambda env: closed.append(env.name))
    given = SimEnv(config.env)
    asyncio.run(MEASUREMENTS[name](config, run, given))
    assert closed == []
    asyncio.run(MEASUREMENTS[name](config, run, None))
    assert len(closed) == 1


def test_an_env_that_is_refused_is_closed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(SimEnv, "close", lambda env: closed.append(env.name))
    monkeypatch.setattr(SimEnv, "items", lambda env, split: [])
    with pytest.raises(UserError, match="split is empty"):
        asyncio.run(evaluate(sim_config(tmp_path), SKILL))
    assert len(closed) == 1


class Graded(Target):
    """A target that would know if it were asked for scores."""

    schemas: list[str]

    def __init__(self) -> None:
        self.schemas = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.schemas += [request.schema.name] if request.schema else []
        return await super().chat(request)


def test_in_a_judged_ablation_the_target_never_grades_itself(tmp_path: Path) -> None:
    config = judge_config(tmp_path)
    models: dict[str, Any] = {"target": Graded(), "optimizer": Optimizer()}
    result = asyncio.run(TrainingLoop(config, models=models).fit())
    run = RunDirectory(result.path)
    judge = Optimizer()
    found = asyncio.run(ablate(run, config, models={"target": models["target"], "optimizer": judge}))
    assert models["target"].schemas == []
    assert len(judge.judged) == found["repeats"] * found["items"] * 2, "with the one rule, and without it"
    assert not found["deterministic"], "the judge's scores are noisy, although the target is not"
    assert found["rows"][0]["worth"] == 1


def test_without_a_judge_no_optimizer_is_opened(tmp_path: Path) -> None:
    async def work() -> None:
        config = sim_config(tmp_path, "models.optimizer_model=openai:needs-a-key")
        async with measuring_session(config, tmp_path / "here") as session:
            with pytest.raises(FatalError, match="no model for this role"):
                await session.ctx.optimizer([{"role": "user", "content": "?"}], stage="judge", label="")

    asyncio.run(work())


def test_replies_of_a_shared_journal_are_not_paid_for_again(tmp_path: Path) -> None:
    config = sim_config(tmp_path)
    asyncio.run(evaluate(config, SKILL, split="val", out=tmp_path / "one"))
    spy = Spy()

    async def work() -> float:
        shared = tmp_path / "one" / "journal.sqlite"
        opened = measuring_session(config, tmp_path / "two", models={"target": spy}, shared_journal=shared)
        async with opened as session:
            items = session.ctx.env.items("val")
            return (await measure(SKILL, items, session.ctx, tag="eval-val", stage="evaluate")).score

    assert asyncio.run(work()) == asyncio.run(evaluate(config, SKILL, split="val"))["score"]
    assert spy.requests == []
