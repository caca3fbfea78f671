"""Formats a plan as lines of text: alone before a run, or next to the run's real figures."""

from __future__ import annotations

from collections.abc import Callable

from skillopt.record.forecast import Estimate, Plan, total
from skillopt.record.summary import Forecast, PlanFigures
from skillopt.view.text import dollars, duration


def _number(value: float) -> str:
    """A number as text with two significant figures, because an estimate is not more precise."""
    return f"{float(f'{value:.2g}'):,.0f}"


def plan_lines(plan: Plan) -> list[str]:
    """Lines on the expected steps, calls, tokens, cost and time of a run. Only the number of steps is exact."""
    sizes = ", ".join(f"{count} {split}" for split, count in plan.items.items())
    lines = [f"Steps: {plan.steps} in {plan.epochs} epochs over {sizes} items", f"Schedule: {plan.schedule}"]
    lines.append("Estimates, if the run goes to its last step: a likely value (and the range around it)")
    for role in plan.usd:
        stages = ", ".join(f"{line.stage} {line.calls:,}" for line in plan.lines if line.role == role)
        lines.append(f"  {role} calls: {likely(plan.calls(role))}" + (f": {stages}" if stages else ""))
    tokens = (f"{role} {likely(plan.tokens[role])}" for role in plan.usd)
    lines.append("Tokens (estimate): " + ", ".join(tokens))
    lines += [
        f"  {role}: {likely(each)} of these are read from the endpoint's cache" for role, each in plan.cached.items()
    ]
    costs = [f"{role} {likely(plan.usd[role], dollars)}" for role in plan.usd]
    priced = [each for each in plan.usd.values() if each]
    if len(priced) == len(plan.usd) and any(each.likely for each in priced):
        costs.append(f"together {likely(total(priced), dollars)}")
    lines.append("Cost (estimate): " + ", ".join(costs))
    taken = ", ".join(
        f"{role} calls of {duration(plan.call_seconds[role])}, {plan.widths[role]} at once"
        for role in plan.usd
        if plan.calls(role).likely
    )
    lines.append(f"Time (estimate): {likely(plan.seconds, duration)} ({taken})")
    return lines


def beside_lines(plan: PlanFigures) -> list[str]:
    """A line for the end of a run, with each planned figure and the real one."""
    parts = (f"{name} {planned} → {real}" for name, planned, real in planned_rows(plan) if name != "steps")
    return [f"Planned (estimate) → real: {'; '.join(parts)}"]


def planned_rows(plan: PlanFigures) -> list[tuple[str, str, str]]:
    """The rows of a table with three columns: name, planned value with its range, real value."""
    rows = [("steps", f"{plan.steps.planned}", f"{plan.steps.real}")]
    for what, figures in (("calls", plan.calls), ("tokens", plan.tokens)):
        for role in figures.roles:
            row = figures.of(role)
            rows.append((f"{role} {what}", likely(row), f"{row.real or 0:,}"))
    for role in plan.calls.roles:
        row = plan.usd.of(role)
        rows.append((f"{role} cost", likely(row, dollars), dollars(row.real)))
    return [*rows, ("time", likely(plan.seconds, duration), duration(plan.seconds.real or 0))]


def likely(figure: Estimate | Forecast | None, form: Callable[[float], str] = _number) -> str:
    """A likely value with the range around it."""
    if figure is None or figure.low is None or figure.high is None:
        return "unknown"
    span = f"{form(figure.low)}–{form(figure.high)}"
    if figure.likely is None:
        return span
    return form(figure.likely) if not figure.likely else f"{form(figure.likely)} ({span})"
