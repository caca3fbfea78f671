"""Screening: the complete and the minimal remedy on a part of the step's training batch, before the gate.

The better one goes on to the gate, whose rule and error rate hold for it. The validation split has no part in this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillopt.record.events import Raced
from skillopt.record.state import ShortForm
from skillopt.record.step import ScreeningRun
from skillopt.tasks.base import Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.edits.candidates import Candidate
from skillopt.training.requests.blocks import ends
from skillopt.training.rollout import roll_out_all, scored

SHARE = 0.5
"""The share of the batch that the candidates do."""
LEAST = 8
"""The least tasks that the candidates do, if the batch has as many."""
MOST_SHOWN = 4
"""The most tasks of which the next request shows both outputs."""
LONGEST_SHOWN = 600
"""The most characters of each shown output."""


@dataclass(frozen=True, kw_only=True)
class Screened:
    """The candidate that the step continues with, and the scores of both."""

    winner: Candidate
    runs: tuple[ScreeningRun, ...] = ()
    """The winner first; empty if there was one candidate."""
    short_form: ShortForm | None = None
    """The minimal remedy, if it was tried."""


async def screen(
    candidates: Sequence[Candidate], items: Sequence[Item], batch: Sequence[Trajectory], ctx: Context
) -> Screened:
    """The better of two candidates on a part of the batch's items; at an equal score the first, which is the complete
    one. `batch` says which of the items the current skill fails."""
    if len(candidates) == 1:
        return Screened(winner=candidates[0])
    metric = ctx.config.evaluation.metric
    current = {t.item_id: t.score.value(metric) for t in batch}
    order = screening_order(items, current, ctx)
    some = order[: max(LEAST, math.ceil(SHARE * len(order)))]
    results: list[dict[str, Trajectory]] = []
    with ctx.timed("race"):
        for candidate in candidates:
            tag = f"race-{ctx.step:04d}-{candidate.name}"
            done = await roll_out_all(candidate.applied.skill, some, ctx, tag=tag, stage="race")
            results.append({t.item_id: t for t in scored(done)})
    both = [item.id for item in some if all(item.id in rows for rows in results)]
    scores = [math.fsum(rows[i].score.value(metric) for i in both) / max(1, len(both)) for rows in results]
    ranked = sorted(range(len(candidates)), key=lambda number: (-scores[number], number))
    runs = tuple(_result(candidates[number], len(both), scores[number]) for number in ranked)
    ctx.emit(Raced(candidates=runs))
    complete, minimal = results
    lost = ranked[0] == 1
    form = ShortForm(
        step=ctx.step,
        text=candidates[1].applied.applied[-1].text,
        tasks=len(both),
        score=round(scores[1], 6),
        complete=round(scores[0], 6),
        outputs=tuple(_outputs(both, complete, minimal, metric)) if lost else (),
    )
    return Screened(winner=candidates[ranked[0]], runs=runs, short_form=form)


def screening_order(items: Sequence[Item], current: Mapping[str, float], ctx: Context) -> list[Item]:
    """The batch's items in an order in which the items that the current skill fails are spread evenly."""
    by_id = {item.id: item for item in items if item.id in current}
    rng = ctx.rng("race")
    groups = [sorted(i for i in by_id if (current[i] < 0.5) == fails) for fails in (True, False)]
    positions: list[tuple[float, str]] = []
    for group in groups:
        rng.shuffle(group)
        positions += [((number + 0.5) / len(group), name) for number, name in enumerate(group)]
    return [by_id[name] for _, name in sorted(positions)]


def _outputs(
    ids: Sequence[str], complete: Mapping[str, Trajectory], minimal: Mapping[str, Trajectory], metric: str
) -> list[dict[str, str]]:
    """The tasks on which the complete remedy fell behind most, with both outputs."""
    behind = {i: complete[i].score.value(metric) - minimal[i].score.value(metric) for i in ids}
    worst = sorted((i for i in ids if behind[i] < 0), key=lambda i: (behind[i], i))[:MOST_SHOWN]
    return [
        {
            "task": ends(minimal[i].input, LONGEST_SHOWN),
            "output_with_the_short_text": ends(minimal[i].output, LONGEST_SHOWN),
            "output_with_all_edits": ends(complete[i].output, LONGEST_SHOWN),
            "expected": ends(" | ".join(minimal[i].answers[:1]), LONGEST_SHOWN),
        }
        for i in worst
    ]


def _result(candidate: Candidate, tasks: int, score: float) -> ScreeningRun:
    edits = tuple(edit.id for edit in candidate.applied.applied)
    return ScreeningRun(name=candidate.name, edits=edits, items=tasks, score=round(score, 6))
