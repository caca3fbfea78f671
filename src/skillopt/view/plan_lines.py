"""A plan as people read it, alone and compared with a run's real figures."""

from __future__ import annotations

from skillopt.record.base import ROLES
from skillopt.record.forecast import Plan
from skillopt.record.summary import PlanFigures
from skillopt.view.text import dollars, duration


def plan_lines(plan: Plan) -> list[str]:
    """What a run will take; every figure but the steps is an estimate."""
    sizes = ", ".join(f"{count} {split}" for split, count in plan.items.items())
    lines = [f"Steps: {plan.steps} in {plan.epochs} epochs over {sizes} items", "Calls (estimate):"]
    for role in ROLES:
        lines.append(f"  {role}: {_numbers(plan.calls(role))}")
        lines += [f"    {line.stage}: {_numbers(line.calls)}" for line in plan.lines if line.role == role]
    tokens = (f"{role} {_numbers(plan.tokens[role])}" for role in ROLES)
    lines.append("Tokens (estimate): " + ", ".join(tokens))
    costs = (f"{role} {_money(plan.usd[role])}" for role in ROLES)
    lines.append("Cost (estimate): " + ", ".join(costs))
    taken = ", ".join(
        f"{role} calls of {_span(plan.call_seconds[role])}, {plan.widths[role]} at once"
        for role in ROLES
        if plan.calls(role)[1]
    )
    lines.append(f"Time (estimate): {_span(plan.seconds)} ({taken})")
    return lines


def beside_lines(plan: PlanFigures) -> list[str]:
    """`Planned (estimate) → real` for a run's end."""
    parts = (f"{name} {planned} → {real}" for name, planned, real in planned_rows(plan) if name != "steps")
    return [f"Planned (estimate) → real: {'; '.join(parts)}"]


def planned_rows(plan: PlanFigures) -> list[tuple[str, str, str]]:
    """Name, planned range and real figure, for a table."""
    rows = [("steps", f"{plan.steps.planned}", f"{plan.steps.real}")]
    for what, figures in (("calls", plan.calls), ("tokens", plan.tokens)):
        for role in ROLES:
            row = figures.of(role)
            rows.append((f"{role} {what}", _numbers((row.low or 0, row.high or 0)), f"{row.real or 0:,}"))
    for role in ROLES:
        row = plan.usd.of(role)
        planned = _money(None if row.low is None or row.high is None else (row.low, row.high))
        rows.append((f"{role} cost", planned, dollars(row.real)))
    row = plan.seconds
    return [*rows, ("time", _span((row.low or 0, row.high or 0)), duration(row.real or 0))]


def _numbers(pair: tuple[float, float]) -> str:
    low, high = pair
    return f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"


def _money(pair: tuple[float, float] | None) -> str:
    if pair is None:
        return "unknown"
    return dollars(pair[0]) if pair[0] == pair[1] else f"{dollars(pair[0])}–{dollars(pair[1])}"


def _span(pair: tuple[float, float]) -> str:
    return duration(pair[0]) if pair[0] == pair[1] else f"{duration(pair[0])}–{duration(pair[1])}"
