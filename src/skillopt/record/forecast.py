"""What is known before a run: the plan with its ranges, and the checks of the doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from skillopt.record.base import ROLES, ByRole, Role
from skillopt.record.costs import Bill
from skillopt.record.summary import Forecast, PlanFigures, PlannedSteps, Summary

Range = tuple[float, float]


class Check(BaseModel):
    """One line of the doctor's checklist."""

    model_config = ConfigDict(frozen=True)

    name: str
    status: Literal["pass", "warn", "fail"]
    says: str
    fix: str = ""


class StagePlan(BaseModel):
    """The calls of one stage of one role."""

    model_config = ConfigDict(frozen=True)

    role: str
    stage: str
    calls: tuple[int, int]
    rounds: int
    """How often the stage runs; the calls of one round run side by side."""
    prompt: Range
    """Prompt tokens of one call."""


class Plan(BaseModel):
    """The least and the most that a run takes. All but the steps are estimates."""

    model_config = ConfigDict(frozen=True)

    steps: int
    epochs: int
    items: dict[str, int] = {}
    lines: tuple[StagePlan, ...] = ()
    tokens: dict[str, tuple[int, int]] = {}
    """Prompts and replies together, by role."""
    usd: dict[str, Range | None] = {}
    """By role; None if the price is unknown."""
    seconds: Range = (0.0, 0.0)
    call_seconds: dict[str, Range] = {}
    """By role, the assumed duration of one call."""
    widths: dict[str, int] = {}
    """By role, how many calls run at once."""

    def calls(self, role: str) -> tuple[int, int]:
        ranges = [line.calls for line in self.lines if line.role == role]
        return sum(low for low, _ in ranges), sum(high for _, high in ranges)


class Preflight(BaseModel):
    """What whoever starts a training passes to it."""

    plan: Plan
    advice: list[Check] = []


def with_real_figures(plan: Plan, summary: Summary) -> PlanFigures:
    """The plan with a run's real figures, for the summary."""
    stages = {
        role: {
            line.stage: _figure(line.calls, summary.calls_by_stage.of(role).get(line.stage, 0))
            for line in plan.lines
            if line.role == role
        }
        for role in ROLES
    }
    return PlanFigures(
        steps=PlannedSteps(planned=plan.steps, real=summary.steps.run),
        calls=_by_role(plan.calls, summary.calls.of),
        tokens=_by_role(lambda role: plan.tokens.get(role, (0, 0)), lambda role: summary.tokens.of(role).total),
        usd=_by_role(plan.usd.get, summary.cost_usd.of),
        seconds=_figure(plan.seconds, summary.seconds),
        by_stage=ByRole[dict[str, Forecast]](target=stages["target"], optimizer=stages["optimizer"]),
    )


def with_current_costs(summary: Summary, costs: Bill) -> Summary:
    """The summary with what was paid until now, also next to the plan."""
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
            **{role: summary.plan[name].of(role).model_copy(update={"real": of(role)}) for role in ROLES}
        )
        for name, of in real.items()
    }
    return current.model_copy(update={"plan": summary.plan.model_copy(update=figures)})


def _by_role(planned: Callable[[Role], Range | None], real: Callable[[Role], float | None]) -> ByRole[Forecast]:
    target, optimizer = (_figure(planned(role), real(role)) for role in ROLES)
    return ByRole[Forecast](target=target, optimizer=optimizer)


def _figure(planned: Range | None, real: float | None) -> Forecast:
    low, high = planned or (None, None)
    return Forecast(low=low, high=high, real=real)
