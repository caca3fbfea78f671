"""How the learning rate (edits per step) falls over a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skillopt import plugins
from skillopt.config import OptimizerConfig
from skillopt.config.sections import AUTO, SCHEDULES, rounded
from skillopt.errors import UserError

Shape = Callable[[float], float]
"""The share of the way from the lowest to the full rate (0 to 1), by how much of the run is done (0 to 1)."""
EXPLORATORY_STEPS, EXPLORATORY_TOKENS = 16, 200
"""A run of at least so many steps from an initial skill of fewer tokens explores: much is missing at the start, little
at the end. A shorter run has no steps to spare, and a longer skill is only refined (docs/choosing.md)."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The schedule of a run, chosen once."""

    name: str
    shape: Shape
    reason: str = ""
    """Why `auto` chose the schedule; empty if the config names one."""

    @property
    def summary(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


def shape_of(name: str) -> Shape | None:
    """A built-in one, or one that an installed package registers as `skillopt.schedules`; None for auto."""
    if name in SCHEDULES or name == AUTO:
        return SCHEDULES.get(name)
    known = (AUTO, *SCHEDULES)
    shape: Shape = plugins.instance(plugins.load("schedules", name, key="optimizer.lr_scheduler", known=known))
    return shape


def choose_schedule(name: str, shape: Shape | None, config: OptimizerConfig, steps: int, tokens: int) -> Schedule:
    """The schedule of a run of so many steps from a skill of so many tokens; `shape` None: auto. A rate that cannot
    change is refused."""
    schedule = Schedule(name=name, shape=shape) if shape else auto_schedule(steps, tokens)
    if static := config.static_rate(schedule.shape):
        raise UserError(static)
    return schedule


def auto_schedule(steps: int, tokens: int) -> Schedule:
    name = "cosine" if steps >= EXPLORATORY_STEPS and tokens < EXPLORATORY_TOKENS else "constant"
    return Schedule(name=name, shape=SCHEDULES[name], reason=f"{steps} steps from {_skill_of(tokens)}")


def _skill_of(tokens: int) -> str:
    article = "an" if f"{tokens:,}".partition(",")[0] in {"11", "18"} or str(tokens)[0] == "8" else "a"
    return f"{article} {tokens:,}-token skill" if tokens else "an empty skill"


def scheduled_rate(step: int, steps: int, config: OptimizerConfig, shape: Shape) -> float:
    """The rate of step 1 … steps before any decay; the last step has the end of the schedule."""
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * shape(step / steps)


def decayed_rate(scheduled: float, decay: float, config: OptimizerConfig) -> float:
    """The rate after the decay of steps that were not accepted."""
    return max(config.min_learning_rate, scheduled * decay)


def edits_for(rate: float) -> int:
    """The most edits of a step."""
    return max(1, rounded(rate))
