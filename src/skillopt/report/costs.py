"""What a run took: calls, tokens and dollars by role and stage, seconds by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from skillopt.run.summary import ROLES


@dataclass(frozen=True, kw_only=True)
class CostRow:
    role: str
    stage: str
    calls: int
    prompt: int | None
    """Prompt tokens; None for a run that did not count them by stage."""
    completion: int | None
    cached: int | None
    """Prompt tokens that the endpoint had in its cache."""
    usd: float | None
    """None where the price is unknown."""


def cost_rows(summary: Mapping[str, Any]) -> list[CostRow]:
    """A row for each role and stage, most calls first."""
    rows = []
    for role in ROLES:
        tokens = summary.get("tokens_by_stage", {}).get(role, {})
        dollars = summary["cost_usd_by_stage"].get(role, {})
        stages = summary["calls_by_stage"].get(role, {})
        for stage in sorted(stages, key=lambda name: (-stages[name], name)):
            counted = tokens.get(stage, {})
            kinds = {kind: counted.get(kind) for kind in ("prompt", "completion", "cached")}
            rows.append(CostRow(role=role, stage=stage, calls=stages[stage], usd=dollars.get(stage), **kinds))
    return rows


def role_row(summary: Mapping[str, Any], role: str) -> CostRow:
    """One role's sum."""
    return CostRow(
        role=role, stage="all", calls=summary["calls"][role], usd=summary["cost_usd"][role], **summary["tokens"][role]
    )


def stage_seconds(summary: Mapping[str, Any], history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Wall-clock seconds by stage, longest first; for a run that did not keep them, those of its steps."""
    found: dict[str, float] = dict(summary.get("seconds_by_stage") or {})
    if not found:
        for record in history:
            for stage, seconds in record["telemetry"].get("seconds", {}).items():
                found[stage] = found.get(stage, 0.0) + seconds
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def total_usd(summary: Mapping[str, Any]) -> float | None:
    """Over both roles; None where a price is unknown."""
    costs = [summary["cost_usd"][role] for role in ROLES]
    return None if None in costs else float(sum(costs))
