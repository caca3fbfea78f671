"""How the learning rate (edits per step) changes over a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skillopt import plugins
from skillopt.config import OptimizerConfig
from skillopt.config.sections import AUTO, SCHEDULES, rounded
from skillopt.errors import UserError

Shape = Callable[[float], float]
"""A function that gets the run's progress (0 to 1) and returns the position of the learning rate: from 0 (the lowest
rate) to 1 (the full rate)."""
EXPLORATORY_STEPS, EXPLORATORY_TOKENS = 16, 200
"""`auto` chooses `cosine` if a run has at least EXPLORATORY_STEPS steps and its initial skill has fewer than
EXPLORATORY_TOKENS tokens. Such a skill needs many edits at the start, but few at the end. In other runs, `auto` chooses
`constant` (docs/choosing.md)."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning-rate schedule of a run."""

    name: str
    shape: Shape
    reason: str = ""
    """Why `auto` chose the schedule; empty if the config names one."""

    @property
    def summary(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


def shape_of(name: str) -> Shape | None:
    """The shape with this name: built in, or registered by an installed package as `skillopt.schedules`. None if the
    name is `auto`."""
    if name in SCHEDULES or name == AUTO:
        return SCHEDULES.get(name)
    known = (AUTO, *SCHEDULES)
    shape: Shape = plugins.instance(plugins.load("schedules", name, key="optimizer.lr_scheduler", known=known))
    return shape


def choose_schedule(name: str, shape: Shape | None, config: OptimizerConfig, steps: int, tokens: int) -> Schedule:
    """The schedule of a run that has `steps` steps and starts from a skill of `tokens` tokens. If `shape` is None, a
    shape is chosen automatically. Raises an error if the learning rate could never change."""
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
    """The learning rate of a step (1 to `steps`) before any decay. The last step has the rate with which the schedule
    ends."""
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * shape(step / steps)


def decayed_rate(scheduled: float, decay: float, config: OptimizerConfig) -> float:
    """The scheduled learning rate times `decay`, but not below the lowest rate. Steps that were not accepted lower
    `decay`."""
    return max(config.min_learning_rate, scheduled * decay)


def edits_for(rate: float) -> int:
    """The maximum number of edits of a step with this learning rate."""
    return max(1, rounded(rate))
