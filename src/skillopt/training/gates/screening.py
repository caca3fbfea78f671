"""Screening: the candidates of one step on a few items, before the gate. After each round the worse half drops out.

The winner then goes through the whole gate, whose rule and error rate hold for it: a gate for noisy targets counts only
samples that are taken after the screening. For a deterministic target the gate finds the winner's rollouts in the
journal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from skillopt.record.events import Raced
from skillopt.record.step import ScreeningRun
from skillopt.tasks.base import Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.edits.update import Candidate
from skillopt.training.rollout import roll_out_all

SHARE = 0.25
"""The share of the selection split that one round takes."""
LEAST = 4
"""Items that a round has at least."""


async def screen(
    candidates: Sequence[Candidate], current: Mapping[str, float], ctx: Context
) -> tuple[Candidate, tuple[ScreeningRun, ...]]:
    """The winner, and each candidate's score when it dropped out. At an equal score the shorter skill stays."""
    if len(candidates) == 1:
        return candidates[0], ()
    items = screening_order(current, ctx)
    size = max(LEAST, math.ceil(SHARE * len(items)))
    totals = dict.fromkeys(range(len(candidates)), 0.0)
    dropped: list[ScreeningRun] = []
    seen = 0

    def rank(number: int) -> tuple[float, int, int]:
        return -totals[number], candidates[number].applied.skill.tokens, number

    with ctx.timed("race"):
        while len(totals) > 1 and seen < len(items):
            batch = items[seen : seen + size]
            seen += len(batch)
            for number in totals:
                totals[number] += await _total(candidates[number], number, batch, ctx)
            if len(set(totals.values())) == 1 and seen <= 2 * size:
                continue
            ranked = sorted(totals, key=rank)
            for number in ranked[(len(ranked) + 1) // 2 :]:
                dropped.append(_result(candidates[number], totals.pop(number), seen))
    winner = min(totals, key=rank)
    results = (_result(candidates[winner], totals[winner], seen), *dropped)
    ctx.emit(Raced(candidates=results))
    return candidates[winner], results


def screening_order(current: Mapping[str, float], ctx: Context) -> list[Item]:
    """The selection items, so that every round has its share of those that the current skill fails."""
    items = {item.id: item for item in ctx.env.items("val") if item.id in current}
    rng = ctx.rng("race")
    groups = [sorted(i for i in items if (current[i] < 0.5) == fails) for fails in (True, False)]
    positions: list[tuple[float, str]] = []
    for group in groups:
        rng.shuffle(group)
        positions += [((number + 0.5) / len(group), name) for number, name in enumerate(group)]
    return [items[name] for _, name in sorted(positions)]


async def _total(candidate: Candidate, number: int, items: Sequence[Item], ctx: Context) -> float:
    tag = f"race-{ctx.step:04d}-{number}"
    results = await roll_out_all(candidate.applied.skill, items, ctx, tag=tag, stage="race")
    metric = ctx.config.evaluation.metric
    return math.fsum(result.score.value(metric) for result in results if isinstance(result, Trajectory))


def _result(candidate: Candidate, total: float, items: int) -> ScreeningRun:
    edits = tuple(edit.id for edit in candidate.applied.applied)
    return ScreeningRun(name=candidate.name, edits=edits, items=items, score=round(total / max(1, items), 6))
