"""A race between the candidates of one step, before the gate: all on a few items, the worse half drops out.

The winner then goes through the whole gate, whose rule and error rate hold for it: a gate for noisy targets counts only
samples that are taken after the race. For a deterministic target the gate finds the winner's rollouts in the journal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from skillopt.core.context import Context
from skillopt.core.retry import roll_out_all
from skillopt.edits.candidates import Candidate
from skillopt.envs.base import Item, Trajectory

SHARE = 0.25
"""The share of the selection split that one heat takes."""
LEAST = 4
"""Items that a heat has at least."""


async def race(
    runners: Sequence[Candidate], current: Mapping[str, float], ctx: Context
) -> tuple[Candidate, list[dict[str, Any]]]:
    """The winner, and what each candidate had when it dropped out. At an equal score the shorter skill stays."""
    if len(runners) == 1:
        return runners[0], []
    items = heat_order(current, ctx)
    size = max(LEAST, math.ceil(SHARE * len(items)))
    totals = dict.fromkeys(range(len(runners)), 0.0)
    dropped: list[dict[str, Any]] = []
    seen = 0

    def place(number: int) -> tuple[float, int, int]:
        return -totals[number], runners[number].applied.skill.tokens, number

    with ctx.timed("race"):
        while len(totals) > 1 and seen < len(items):
            heat = items[seen : seen + size]
            seen += len(heat)
            for number in totals:
                totals[number] += await _run(runners[number], number, heat, ctx)
            if len(set(totals.values())) == 1 and seen <= 2 * size:
                continue
            places = sorted(totals, key=place)
            for number in places[(len(places) + 1) // 2 :]:
                dropped.append(_result(runners[number], totals.pop(number), seen))
    winner = min(totals, key=place)
    rows = [_result(runners[winner], totals[winner], seen), *dropped]
    ctx.emit("raced", candidates=rows)
    return runners[winner], rows


def heat_order(current: Mapping[str, float], ctx: Context) -> list[Item]:
    """The selection items, so that every stretch has its share of those that the current skill fails."""
    items = {item.id: item for item in ctx.env.items("val") if item.id in current}
    rng = ctx.rng("race")
    groups = [sorted(i for i in items if (current[i] < 0.5) == fails) for fails in (True, False)]
    places: list[tuple[float, str]] = []
    for group in groups:
        rng.shuffle(group)
        places += [((number + 0.5) / len(group), name) for number, name in enumerate(group)]
    return [items[name] for _, name in sorted(places)]


async def _run(runner: Candidate, number: int, heat: Sequence[Item], ctx: Context) -> float:
    tag = f"race-{ctx.step:04d}-{number}"
    results = await roll_out_all(runner.applied.skill, heat, ctx, tag=tag, stage="race")
    metric = ctx.config.evaluation.metric
    return math.fsum(result.score.value(metric) for result in results if isinstance(result, Trajectory))


def _result(runner: Candidate, total: float, items: int) -> dict[str, Any]:
    edits = [edit.id for edit in runner.applied.applied]
    return {"name": runner.name, "edits": edits, "items": items, "score": round(total / max(1, items), 6)}
