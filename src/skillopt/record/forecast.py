"""Records that are made before a run: the plan with its ranges, and the checks of `skillopt doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from pydantic import Field

from skillopt.record.base import ByRole, Record, Role
from skillopt.record.costs import Bill
from skillopt.record.summary import Forecast, PlanFigures, PlannedSteps, Summary

SPREAD = 1.7
"""The factor between the likely value and each end of an estimate's range. Fifteen simulated runs that did all their
steps were compared with their plans: the calls were within the range in all fifteen runs, the tokens in thirteen
(tests/preflight/test_plan.py). The factor has not been measured with real models."""


class Estimate(Record):
    """A likely value, and the range around it."""

    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0

    @classmethod
    def around(cls, likely: float) -> Estimate:
        return cls(low=likely / SPREAD, likely=likely, high=likely * SPREAD)


class Check(Record):
    """One line of the checklist that `skillopt doctor` prints."""

    name: str
    status: Literal["pass", "warn", "fail"]
    says: str
    fix: str = ""


def total(parts: Iterable[Estimate]) -> Estimate:
    return Estimate.around(sum(part.likely for part in parts))


class StagePlan(Record):
    """The planned calls of one role in one stage."""

    role: str
    stage: str
    calls: int
    """The likely number of calls."""
    rounds: int
    """The number of times that the stage runs. The calls of one round run at the same time."""
    prompt: float
    """Prompt tokens per call."""
    shared: float = 0.0
    """The number of tokens at the beginning of the prompt that are the same in all calls of a round."""


class Plan(Record):
    """The expected calls, tokens, dollars and time of a run. Only the number of steps is exact."""

    steps: int
    epochs: int
    schedule: str = ""
    """The schedule of the learning rate and, if `auto` chose it, the reason."""
    items: dict[str, int] = Field(default={})
    lines: tuple[StagePlan, ...] = ()
    tokens: dict[str, Estimate] = Field(default={})
    """Tokens of prompts and replies together, by role."""
    cached: dict[str, Estimate] = Field(default={})
    """Prompt tokens that the endpoint reads from its cache, by role; only for providers with a cache."""
    usd: dict[str, Estimate | None] = Field(default={})
    """Dollars by role; None if the price is unknown."""
    seconds: Estimate = Estimate()
    call_seconds: dict[str, float] = Field(default={})
    """The assumed duration of one call in seconds, by role."""
    widths: dict[str, int] = Field(default={})
    """The maximum number of calls at the same time, by role."""

    def calls(self, role: str) -> Estimate:
        return Estimate.around(sum(line.calls for line in self.lines if line.role == role))


class Preflight(Record):
    """The plan and the warnings that are made before a training. The caller passes them to the training."""

    plan: Plan
    advice: list[Check] = Field(default=[])


def with_real_figures(plan: Plan, summary: Summary) -> PlanFigures:
    """The plan together with the run's real figures, for the summary."""
    stages = {
        role: {
            line.stage: _figure(Estimate.around(line.calls), summary.calls_by_stage.of(role).get(line.stage, 0))
            for line in plan.lines
            if line.role == role
        }
        for role in summary.calls.roles
    }
    return PlanFigures(
        steps=PlannedSteps(planned=plan.steps, real=summary.steps.run),
        schedule=plan.schedule,
        calls=_by_role(summary, plan.calls, summary.calls.of),
        tokens=_by_role(summary, plan.tokens.get, lambda role: summary.tokens.of(role).total),
        usd=_by_role(summary, plan.usd.get, summary.cost_usd.of),
        seconds=_figure(plan.seconds, summary.seconds),
        by_stage=ByRole[dict[str, Forecast]](**stages),
    )


def with_current_costs(summary: Summary, costs: Bill) -> Summary:
    """The summary with the costs so far. The real figures next to the plan are updated, too."""
    current = summary.model_copy(update=dict(costs))
    if summary.plan is None:
        return current
    real: dict[str, Callable[[Role], float | None]] = {
        "calls": costs.calls.of,
        "tokens": lambda role: costs.tokens.of(role).total,
        "usd": costs.cost_usd.of,
    }
    figures = {
        name: ByRole[Forecast](
            **{
                role: (summary.plan[name].of(role) or Forecast(real=None)).model_copy(update={"real": of(role)})
                for role in costs.calls.roles
            }
        )
        for name, of in real.items()
    }
    return current.model_copy(update={"plan": summary.plan.model_copy(update=figures)})


def _by_role(
    summary: Summary, planned: Callable[[Role], Estimate | None], real: Callable[[Role], float | None]
) -> ByRole[Forecast]:
    return ByRole[Forecast](**{role: _figure(planned(role), real(role)) for role in summary.calls.roles})


def _figure(planned: Estimate | None, real: float | None) -> Forecast:
    if planned is None:
        return Forecast(real=real)
    low, likely, high = (round(each) if each >= 100 else each for each in (planned.low, planned.likely, planned.high))
    return Forecast(low=low, likely=likely, high=high, real=real)
