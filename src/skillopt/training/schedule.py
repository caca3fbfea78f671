"""How the learning rate (edits a step) falls over a run."""

from __future__ import annotations

import math
from collections.abc import Callable

from skillopt import plugins
from skillopt.config import OptimizerConfig
from skillopt.config.sections import SCHEDULES

Shape = Callable[[float], float]
"""The share of the way from the lowest to the full rate (0 to 1), by how much of the run is done (0 to 1)."""


def shape_of(name: str) -> Shape:
    """A built-in one, or one that an installed package registers as `skillopt.schedules`."""
    if name in SCHEDULES:
        return SCHEDULES[name]
    shape: Shape = plugins.instance(plugins.load("schedules", name, key="optimizer.lr_scheduler", known=SCHEDULES))
    return shape


def scheduled_rate(step: int, steps: int, config: OptimizerConfig, shape: Shape | None = None) -> float:
    """The rate of step 1 … steps before any decay: the first step has the full rate, the last one the lowest."""
    share = (shape or shape_of(config.lr_scheduler))((step - 1) / max(1, steps - 1))
    return lowest_rate(config) + (config.learning_rate - lowest_rate(config)) * share


def lowest_rate(config: OptimizerConfig) -> float:
    """Most runs have 4 to 20 steps: a rate that falls to one edit leaves the last third of them with little to do."""
    return max(1.0, config.learning_rate / 2) if config.min_learning_rate is None else config.min_learning_rate


def decayed_rate(scheduled: float, decay: float, config: OptimizerConfig) -> float:
    """The rate after what rejected steps took from it."""
    return max(lowest_rate(config), scheduled * decay)


def edits_for(rate: float) -> int:
    """Rates are fractional; edits are not."""
    return max(1, math.floor(rate + 0.5))
