"""The learning rate falls as its schedule says, never below its minimum, and is rounded only for use."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.config import OptimizerConfig
from skillopt.config.sections import SCHEDULES
from skillopt.training.schedule import choose_schedule, decayed_rate, edits_for, scheduled_rate
from support import SIM, skillopt


@st.composite
def optimizers(draw: st.DrawFn) -> OptimizerConfig:
    low = draw(st.floats(1, 63))
    return OptimizerConfig(
        learning_rate=draw(st.floats(low, 64)),
        min_learning_rate=low,
        lr_scheduler=draw(st.sampled_from(sorted(SCHEDULES))),
    )


def rates(shape: str, steps: int, high: float = 8, low: float = 1) -> list[float]:
    config = OptimizerConfig(learning_rate=high, min_learning_rate=low)
    return [round(scheduled_rate(step, steps, config, SCHEDULES[shape]), 2) for step in range(1, steps + 1)]


def test_cosine_by_hand_begins_as_the_guide_says() -> None:
    assert rates("cosine", 8) == [7.73, 6.97, 5.84, 4.5, 3.16, 2.03, 1.27, 1.0]


def test_linear_by_hand() -> None:
    assert rates("linear", 7) == [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


def test_constant_stays() -> None:
    assert rates("constant", 4) == [8.0] * 4


def test_the_console_prints_the_guides_own_line(tmp_path: Path) -> None:
    eight = ("train.num_epochs=2", "optimizer.learning_rate=8", "optimizer.lr_scheduler=cosine")
    done = skillopt("train", "--config", str(SIM), *eight, f"env.output_root={tmp_path}")
    assert re.search(r"\[Step 1/8\] Selected \d edits \(lr=8, cosine → 7\.7\)", done.stdout)


@pytest.mark.parametrize(
    ("steps", "tokens", "choice"),
    [
        (16, 6, "cosine: 16 steps from a 6-token skill"),
        (16, 0, "cosine: 16 steps from an empty skill"),
        (40, 199, "cosine: 40 steps from a 199-token skill"),
        (15, 6, "constant: 15 steps from a 6-token skill"),
        (16, 200, "constant: 16 steps from a 200-token skill"),
        (100, 1800, "constant: 100 steps from a 1,800-token skill"),
        (16, 18, "cosine: 16 steps from an 18-token skill"),
        (16, 8000, "constant: 16 steps from an 8,000-token skill"),
    ],
)
def test_auto_takes_cosine_for_a_long_run_from_a_short_skill_and_says_why(steps: int, tokens: int, choice: str) -> None:
    assert choose_schedule("auto", None, OptimizerConfig(), steps, tokens).summary == choice


def test_auto_is_the_default_is_named_everywhere_and_stays_in_the_config(tmp_path: Path) -> None:
    auto = ("optimizer.lr_scheduler=auto", "env.options={rules: 20, train: 48, val: 12, test: 4}")
    done = skillopt("train", "--config", str(SIM), *auto, f"env.output_root={tmp_path}")
    choice = "cosine: 16 steps from a 58-token skill"
    assert f"Schedule: {choice}\n" in done.stdout
    (path,) = tmp_path.glob("sim/*/report.html")
    assert choice in path.read_text()
    assert choice in (path.parent / "report.md").read_text()
    assert choice in skillopt("plan", "--config", str(SIM), *auto).stdout
    assert "lr_scheduler: auto" in (path.parent / "config.yaml").read_text()
    again = skillopt("train", "--config", str(SIM), *auto, f"env.output_root={tmp_path}")
    assert "already finished" in again.stdout
    assert OptimizerConfig().lr_scheduler == "auto"


@given(optimizers(), st.integers(1, 60))
def test_rates_never_rise_and_stay_between_minimum_and_learning_rate(config: OptimizerConfig, steps: int) -> None:
    shape = SCHEDULES[config.lr_scheduler]
    values = [scheduled_rate(step, steps, config, shape) for step in range(1, steps + 1)]
    assert all(a >= b - 1e-9 for a, b in pairwise(values))
    assert all(config.min_learning_rate - 1e-9 <= rate <= config.learning_rate + 1e-9 for rate in values)
    if config.lr_scheduler != "constant":
        assert values[-1] == pytest.approx(config.min_learning_rate)


@given(optimizers(), st.floats(1, 64), st.floats(0, 1))
def test_decay_takes_its_share_but_never_goes_below_the_minimum(
    config: OptimizerConfig, rate: float, decay: float
) -> None:
    used = decayed_rate(rate, decay, config)
    assert used >= config.min_learning_rate
    assert used == config.min_learning_rate or used == pytest.approx(rate * decay)
    assert used <= max(rate, config.min_learning_rate)


def test_decay_by_hand() -> None:
    config = OptimizerConfig(learning_rate=8, min_learning_rate=2)
    assert [decayed_rate(8, decay, config) for decay in (1, 0.8, 0.64, 0.1)] == [8, 6.4, 5.12, 2]


@pytest.mark.parametrize(
    ("rate", "edits"), [(1, 1), (1.49, 1), (1.5, 2), (2.5, 3), (3.5, 4), (4.49, 4), (7.7, 8), (0.2, 1), (64, 64)]
)
def test_a_rate_is_rounded_half_up_and_is_at_least_one_edit(rate: float, edits: int) -> None:
    assert edits_for(rate) == edits


@given(st.floats(1, 64), st.floats(1, 64))
def test_a_higher_rate_never_means_fewer_edits(a: float, b: float) -> None:
    assert edits_for(min(a, b)) <= edits_for(max(a, b))
