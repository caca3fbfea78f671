"""The learning rate falls as its schedule says, never below its minimum, and is rounded only for use."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.config import OptimizerConfig
from skillopt.config.sections import SCHEDULES
from skillopt.training.schedule import decayed_rate, edits_for, scheduled_rate


@st.composite
def optimizers(draw: st.DrawFn) -> OptimizerConfig:
    low = draw(st.floats(1, 64))
    return OptimizerConfig(
        learning_rate=draw(st.floats(low, 64)),
        min_learning_rate=low,
        lr_scheduler=draw(st.sampled_from(sorted(SCHEDULES))),  # type: ignore[arg-type]
    )


def rates(shape: str, steps: int, high: float = 8, low: float = 1) -> list[float]:
    config = OptimizerConfig.model_validate({"learning_rate": high, "min_learning_rate": low, "lr_scheduler": shape})
    return [round(scheduled_rate(step, steps, config), 2) for step in range(1, steps + 1)]


def test_cosine_by_hand() -> None:
    assert rates("cosine", 8) == [8.0, 7.65, 6.68, 5.28, 3.72, 2.32, 1.35, 1.0]


def test_linear_by_hand() -> None:
    assert rates("linear", 8) == [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(("rate", "lowest"), [(1, 1), (1.5, 1), (4, 2), (16, 8)])
def test_without_a_minimum_the_rate_falls_to_its_half_so_that_short_runs_keep_their_pace(
    rate: float, lowest: float
) -> None:
    config = OptimizerConfig(learning_rate=rate, lr_scheduler="cosine")
    assert scheduled_rate(4, 4, config) == lowest == decayed_rate(rate, 0.01, config)
    assert scheduled_rate(1, 4, config) > lowest or rate == 1


def test_constant_stays() -> None:
    assert rates("constant", 4) == [8.0] * 4


@given(optimizers(), st.integers(1, 60))
def test_rates_never_rise_and_stay_between_minimum_and_learning_rate(config: OptimizerConfig, steps: int) -> None:
    found = [scheduled_rate(step, steps, config) for step in range(1, steps + 1)]
    assert all(a >= b - 1e-9 for a, b in pairwise(found))
    assert all(config.min_learning_rate - 1e-9 <= rate <= config.learning_rate + 1e-9 for rate in found)
    assert found[0] == pytest.approx(config.learning_rate)
    if config.lr_scheduler != "constant" and steps > 1:
        assert found[-1] == pytest.approx(config.min_learning_rate)


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
