"""Gate: a candidate is accepted only if it strictly improves on the selection split.

The items that the current skill fails come first. As soon as the candidate can no longer win, whatever the rest would
give, the gate stops: the decision is that of the full evaluation, and the calls are saved. What decides is the shortest
deciding prefix of that fixed order, so that timing cannot change what is recorded.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from skillopt.envs.base import Item, RolloutError, Trajectory
from skillopt.errors import Stopped
from skillopt.loop.context import Context
from skillopt.loop.rollout import failed, roll_out_one, rollout, scored
from skillopt.skill import Applied, Skill

Rule = Literal["strict", "keep"]

_EPSILON = 1e-9
"""Sums of soft scores differ by rounding; that is no improvement."""


class ItemEvidence(BaseModel):
    model_config = ConfigDict(frozen=True)

    item_id: str
    before: float
    after: float
    hard: float
    """Whether the candidate solved it, whatever the metric."""


class Verdict(BaseModel):
    """A decision with its evidence."""

    model_config = ConfigDict(frozen=True)

    decision: Literal["accept", "reject", "skipped"]
    """skipped: there was nothing to decide, since no edit could be applied."""
    rule: Rule
    """strict: must raise the score; keep: must not lower it."""
    metric: str
    before: float
    after: float | None
    """The candidate's score; None when the gate could stop before it was known."""
    at_most: float
    """What the candidate can reach at best; equal to `after` where that is known."""
    items: int
    measured: int
    set_aside: dict[str, str] = {}
    """Items that the endpoint refused for their own sake during this gate."""
    evidence: tuple[ItemEvidence, ...] = ()
    trajectories: tuple[Trajectory, ...] = Field(default=(), exclude=True)
    telemetry: dict[str, int] = {}

    @property
    def accepted(self) -> bool:
        return self.decision == "accept"

    @property
    def values(self) -> dict[str, float]:
        return {row.item_id: row.after for row in self.evidence}

    def brief(self) -> dict[str, object]:
        """For the patch log and the history: the evidence without the item list."""
        return self.model_dump(mode="json", exclude={"evidence", "telemetry"})


class Measured(BaseModel):
    """A skill's scores on a whole split."""

    values: dict[str, float]
    set_aside: dict[str, str]
    trajectories: list[Trajectory]

    @property
    def score(self) -> float:
        return math.fsum(self.values.values()) / len(self.values) if self.values else 0.0


async def measure(skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str, stage: str) -> Measured:
    """Every item once. Endpoint failures stop the run: a mean over what happened to work would be no score."""
    results = await rollout(skill, items, ctx, tag=tag, stage=stage)
    lost = [error for error in failed(results) if not error.refused]
    if lost:
        raise Stopped(
            f"{stage}: {len(lost)} of {len(items)} items could not be measured; the last error: {lost[-1].error}"
        )
    refused = {error.item_id: error.error for error in failed(results)}
    require_few(refused, len(items))
    metric = ctx.config.evaluation.metric
    trajectories = scored(results)
    values = {t.item_id: t.score.value(metric) for t in trajectories}
    return Measured(values=values, set_aside=refused, trajectories=trajectories)


def require_few(refused: Mapping[str, str], total: int) -> None:
    if len(refused) > max(1, total // 10):
        raise Stopped(
            f"the endpoint refuses {len(refused)} of {total} items; the last reason: {list(refused.values())[-1]}"
        )


async def gate(
    candidate: Applied, current: Mapping[str, float], ctx: Context, *, tag: str = "", rule: Rule = "strict"
) -> Verdict:
    """Decide between the candidate and the current skill, whose score on each selection item is `current`."""
    if not candidate.applied:
        return _nothing(current, ctx)
    items = {item.id: item for item in ctx.env.items("val") if item.id in current}
    order = sorted(items, key=lambda item_id: (current[item_id], item_id))
    race = _Race(order, current, rule)
    with ctx.timed("gate"):
        results = await _run(candidate.skill, items, race, ctx, tag or f"gate-{ctx.step:04d}")
    prefix = race.deciding_prefix()
    counted = race.counted(prefix)
    kept = [item_id for item_id in prefix if item_id in counted]
    best_case = race.best_case(prefix) / len(counted)
    return Verdict(
        decision="reject" if race.lost(prefix) else "accept",
        rule=rule,
        metric=ctx.config.evaluation.metric,
        before=math.fsum(current[i] for i in counted) / len(counted),
        after=best_case if len(prefix) == len(order) else None,
        at_most=best_case,
        items=len(counted),
        measured=len(kept),
        set_aside={i: race.refused[i] for i in prefix if i in race.refused},
        evidence=tuple(
            ItemEvidence(item_id=i, before=current[i], after=race.known[i], hard=results[i].score.hard) for i in kept
        ),
        trajectories=tuple(results[i] for i in kept),
        telemetry={"rollouts": len(results), "saved": len(order) - len(results)},
    )


def _nothing(current: Mapping[str, float], ctx: Context) -> Verdict:
    score = math.fsum(current.values()) / len(current)
    return Verdict(
        decision="skipped",
        rule="strict",
        metric=ctx.config.evaluation.metric,
        before=score,
        after=None,
        at_most=score,
        items=len(current),
        measured=0,
    )


class _Race:
    """What is known of the candidate, and what that decides."""

    def __init__(self, order: list[str], current: Mapping[str, float], rule: str) -> None:
        self.order = order
        self.current = current
        self.rule = rule
        self.known: dict[str, float] = {}
        self.refused: dict[str, str] = {}

    def counted(self, shown: Sequence[str]) -> list[str]:
        """An item that the endpoint was seen to refuse counts for neither skill."""
        refused = self.refused.keys() & set(shown)
        return [item_id for item_id in self.order if item_id not in refused]

    def best_case(self, shown: Sequence[str]) -> float:
        """The sum that the candidate reaches if all it has not shown yet succeeds."""
        values = [self.known[i] for i in shown if i in self.known]
        return math.fsum(values) + len(self.counted(shown)) - len(values)

    def slack(self, shown: Sequence[str]) -> float:
        """How much the candidate may still lose; at 0 or below it has lost."""
        margin = self.best_case(shown) - math.fsum(self.current[i] for i in self.counted(shown))
        return margin - _EPSILON if self.rule == "strict" else margin + _EPSILON

    def lost(self, shown: Sequence[str]) -> bool:
        return self.slack(shown) <= 0

    def deciding_prefix(self) -> list[str]:
        """The shortest prefix of the order that settles it; the whole order where none does."""
        prefixes = (self.order[:end] for end in range(len(self.order)))
        return next((prefix for prefix in prefixes if self.lost(prefix)), self.order)

    def width(self) -> int:
        """How many more calls are useful at once: as many as it takes, at the losses seen so far, to settle it."""
        losses = math.fsum(1 - value for value in self.known.values())
        typical = (losses + 1) / (len(self.known) + 1)
        return max(1, math.ceil(self.slack(self.order) / typical))


async def _run(
    candidate: Skill, items: Mapping[str, Item], race: _Race, ctx: Context, tag: str
) -> dict[str, Trajectory]:
    """Launch in order, never more than is useful at once; all that was launched is waited for and kept."""
    metric = ctx.config.evaluation.metric
    results: dict[str, Trajectory] = {}
    waiting = iter(enumerate(race.order))
    running: set[asyncio.Task[Trajectory | RolloutError]] = set()
    lost: list[RolloutError] = []
    trouble: list[BaseException] = []
    more = True
    while True:
        while more and not lost and not trouble and not race.lost(race.order) and len(running) < race.width():
            number, item_id = next(waiting, (0, ""))
            more = bool(item_id)
            if more:
                work = roll_out_one(candidate, items[item_id], ctx, tag=tag, number=number, stage="gate")
                running.add(asyncio.create_task(work))
        if not running:
            break
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if error := task.exception():
                trouble.append(error)
                continue
            result = task.result()
            if isinstance(result, Trajectory):
                results[result.item_id] = result
                race.known[result.item_id] = result.score.value(metric)
            elif result.refused:
                race.refused[result.item_id] = result.error
            else:
                lost.append(result)
            ctx.emit("progress", stage="gate", done=len(results), total=len(race.order))
    if trouble:
        raise trouble[0]
    if lost:
        raise Stopped(f"gate: {len(lost)} items could not be measured, so nothing was decided; {lost[-1].error}")
    require_few(race.refused, len(race.order))
    return results
