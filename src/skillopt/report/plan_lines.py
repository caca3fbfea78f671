"""A plan as people read it, alone and compared with a run's real figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from skillopt.preflight.plan import Plan
from skillopt.report.text import dollars, duration
from skillopt.run.summary import ROLES


def plan_lines(plan: Plan) -> list[str]:
    """What a run will take; every figure but the steps is an estimate."""
    sizes = ", ".join(f"{count} {split}" for split, count in plan.items.items())
    lines = [f"Steps: {plan.steps} in {plan.epochs} epochs over {sizes} items", "Calls (estimate):"]
    for role in ROLES:
        lines.append(f"  {role}: {_numbers(plan.calls(role))}{_likely(plan, role, 'calls')}")
        lines += [f"    {line.stage}: {_numbers(line.calls)}" for line in plan.lines if line.role == role]
    tokens = (f"{role} {_numbers(plan.tokens[role])}{_likely(plan, role, 'tokens')}" for role in ROLES)
    lines.append("Tokens (estimate): " + ", ".join(tokens))
    costs = (f"{role} {_money(plan.usd[role])}{_likely(plan, role, 'usd')}" for role in ROLES)
    lines.append("Cost (estimate): " + ", ".join(costs))
    taken = ", ".join(
        f"{role} calls of {_span(plan.call_seconds[role])}, {plan.widths[role]} at once"
        for role in ROLES
        if plan.calls(role)[1]
    )
    lines.append(f"Time (estimate): {_span(plan.seconds)} ({taken})")
    return lines


def _likely(plan: Plan, role: str, what: Literal["calls", "tokens", "usd"]) -> str:
    """` (likely 170)`: what a usual run takes."""
    low, high = plan.calls(role)
    value = getattr(plan.likely[role], what)
    if low == high or not value:
        return ""
    return f" (likely {dollars(value) if what == 'usd' else f'{value:,}'})"


def beside_lines(plan: Mapping[str, Any]) -> list[str]:
    """`Planned (estimate) → real` for a run's end."""
    parts = (f"{name} {planned} → {real}" for name, planned, real in planned_rows(plan) if name != "steps")
    return [f"Planned (estimate) → real: {'; '.join(parts)}"]


def planned_rows(plan: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, planned range and real figure, for a table."""
    rows = [("steps", f"{plan['steps']['planned']}", f"{plan['steps']['real']}")]
    for what in ("calls", "tokens"):
        for role in ROLES:
            row = plan[what][role]
            rows.append((f"{role} {what}", _numbers((row["low"], row["high"])), f"{row['real']:,}"))
    for role in ROLES:
        row = plan["usd"][role]
        planned = _money(None if row["low"] is None else (row["low"], row["high"]))
        rows.append((f"{role} cost", planned, dollars(row["real"])))
    row = plan["seconds"]
    return [*rows, ("time", _span((row["low"], row["high"])), duration(row["real"]))]


def _numbers(pair: tuple[float, float]) -> str:
    low, high = pair
    return f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"


def _money(pair: tuple[float, float] | None) -> str:
    if pair is None:
        return "unknown"
    return dollars(pair[0]) if pair[0] == pair[1] else f"{dollars(pair[0])}–{dollars(pair[1])}"


def _span(pair: tuple[float, float]) -> str:
    return duration(pair[0]) if pair[0] == pair[1] else f"{duration(pair[0])}–{duration(pair[1])}"
