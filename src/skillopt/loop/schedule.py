"""How the learning rate (edits a step) falls over a run."""

from __future__ import annotations

import math
from collections.abc import Callable

from skillopt.config import OptimizerConfig

SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress: 1 - progress,
    "constant": lambda progress: 1.0,
}
"""The share of the way from the lowest to the full rate, by how much of the run is done (0 to 1)."""


def scheduled_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """The rate of step 1 … steps before any decay; the last step has the lowest."""
    share = SHAPES[config.lr_scheduler](step / steps)
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * share


def decayed_rate(scheduled: float, decay: float, config: OptimizerConfig) -> float:
    """The rate after what rejected steps took from it."""
    return max(config.min_learning_rate, scheduled * decay)


def edits_for(rate: float) -> int:
    """Rates are fractional; edits are not."""
    return max(1, math.floor(rate + 0.5))
