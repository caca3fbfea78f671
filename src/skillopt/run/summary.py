"""The summary of a run: the figures that other programs read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from skillopt.run.directory import RunDirectory
from skillopt.run.journal import Total
from skillopt.run.measured import measurements
from skillopt.run.state import State

ROLES = ("target", "optimizer")
ESTIMATED = ("handoff", "command:", "copilot")
"""Optimizers that do not say what a reply took: their tokens are counted from the texts."""


def usage(totals: list[Total], cost: Callable[[Total], float | None]) -> dict[str, dict[str, Any]]:
    """Calls, tokens and dollars by role; dollars are None where a price is unknown."""
    out: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        own = [total for total in totals if total.role == role]
        costs = [cost(total) for total in own]
        out[role] = {
            "calls": sum(total.calls for total in own),
            "rollouts": sum(total.first_turns for total in own),
            "prompt_tokens": sum(total.prompt_tokens for total in own),
            "completion_tokens": sum(total.completion_tokens for total in own),
            "cached_tokens": sum(total.cached_tokens for total in own),
            "estimated": role == "optimizer" and any(total.model.startswith(ESTIMATED) for total in own),
            "usd": None if None in costs else sum(c for c in costs if c is not None),
            "by_stage": {total.stage: total.calls for total in own},
            "usd_by_stage": {total.stage: cost(total) for total in own},
            "tokens_by_stage": {
                total.stage: {
                    "prompt": total.prompt_tokens,
                    "completion": total.completion_tokens,
                    "cached": total.cached_tokens,
                }
                for total in own
            },
        }
    return out


def bill(paid: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What was paid, as the summary has it."""
    return {
        "calls": {role: paid[role]["calls"] for role in ROLES},
        "tokens": {
            role: {key: paid[role][f"{key}_tokens"] for key in ("prompt", "completion", "cached")} for role in ROLES
        },
        "tokens_estimated": [role for role in ROLES if paid[role]["estimated"]],
        "cost_usd": {role: paid[role]["usd"] for role in ROLES},
        "calls_by_stage": {role: paid[role]["by_stage"] for role in ROLES},
        "cost_usd_by_stage": {role: paid[role]["usd_by_stage"] for role in ROLES},
        "tokens_by_stage": {role: paid[role]["tokens_by_stage"] for role in ROLES},
    }


def rollouts_paid(totals: Iterable[Total]) -> int:
    return sum(total.first_turns for total in totals if total.role == "target")


def persistent_failures(run: RunDirectory) -> list[str]:
    """Items that failed under every skill they were measured with: at least three, or all where there were fewer."""
    measured = outcomes(run)
    enough = min(3, max((len(seen) for seen in measured.values()), default=0))
    return sorted(i for i, seen in measured.items() if len(seen) >= enough and not any(seen.values()))


def outcomes(run: RunDirectory) -> dict[str, dict[str, bool]]:
    """For each training and validation item the skills (by hash) that it was measured with, and whether it was solved.

    Every measurement counts: batches, gates, slow updates, evaluations. The sealed test split is left out.
    """
    found: dict[str, dict[str, bool]] = {}
    for measured in measurements(run):
        for item_id, (hard, _) in measured.items.items() if measured.split != "test" else ():
            seen = found.setdefault(item_id, {})
            seen[measured.skill_hash] = seen.get(measured.skill_hash, False) or hard >= 1
    return found


def summarise(
    run: RunDirectory,
    state: State,
    *,
    benchmark: str,
    seed: int,
    paid: dict[str, dict[str, Any]],
    initial: dict[str, Any],
    best: dict[str, Any],
    baselines: dict[str, Any],
) -> dict[str, Any]:
    ended = state.status != "running"
    owed = bill(paid)
    return {
        "status": state.status,
        "stop_reason": state.stop_reason,
        "benchmark": benchmark,
        "seed": seed,
        "initial": initial,
        "best": best,
        "baselines": baselines,
        **owed,
        "calls": owed["calls"] | {"from_journal": state.telemetry.from_journal},
        "seconds_by_stage": {stage: round(s, 2) for stage, s in sorted(state.telemetry.stages.items())},
        "rollouts_to_best": state.telemetry.rollouts_to_best,
        "edit_acceptance_rate": state.edits_accepted / state.edits_proposed if state.edits_proposed else None,
        "edits": {"proposed": state.edits_proposed, "accepted": state.edits_accepted},
        "persistent_failures": persistent_failures(run) if ended else [],
        "set_aside": state.set_aside,
        "steps": state.counts.model_dump(),
        "gate": {"calls_saved": state.telemetry.gate_calls_saved},
        "seconds": round(state.telemetry.seconds, 2),
    }
