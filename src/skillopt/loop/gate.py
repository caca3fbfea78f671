"""Gate: a candidate is accepted only if it strictly improves on the selection split.

The items that most likely settle it come first: those that the current skill fails. As soon as the candidate can no
longer win, whatever the rest would give, the gate stops: the decision is that of the full evaluation, and the calls are
saved. What decides is the shortest deciding prefix of that fixed order, so that timing cannot change what is recorded.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from skillopt.envs.base import Item, RolloutError, Trajectory
from skillopt.errors import Stopped
from skillopt.loop.context import Context
from skillopt.loop.duel import Rule
from skillopt.loop.rollout import failed, roll_out_one, scored
from skillopt.loop.verify import all_measured, wait_or_stop
from skillopt.skill import Applied, Edit, Skill

_EPSILON = 1e-9
"""Sums of soft scores differ by rounding; that is no improvement."""


class ItemEvidence(BaseModel):
    model_config = ConfigDict(frozen=True)

    item_id: str
    before: float
    after: float
    hard: float
    """Whether the candidate solved it, whatever the metric."""
    repeats: int = 0
    """Fresh samples of each skill behind `before` and `after`; 0 where each has its first."""


class Verdict(BaseModel):
    """A decision with its evidence."""

    model_config = ConfigDict(frozen=True)

    decision: Literal["accept", "reject", "indecisive", "skipped"]
    """indecisive: better, but the evidence does not hold; skipped: no edit could be applied."""
    gate: Literal["strict", "paired"] = "strict"
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
    p: float | None = None
    """How likely the candidate looks this good without being better; None where nothing was repeated."""
    repeats: int = 0
    """Rounds of fresh samples of both skills on the items on which they differ."""
    reason: str = ""
    """Why a candidate that scores higher was rejected all the same."""
    set_aside: dict[str, str] = {}
    """Items that the endpoint refused for their own sake during this gate."""
    standing: dict[str, float] = {}
    """What this gate taught of the skill that training goes on from: its score, item by item."""
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
        return self.model_dump(mode="json", exclude={"evidence", "standing", "telemetry"})


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
    work = [
        partial(roll_out_one, skill, item, ctx, tag=tag, number=number, stage=stage)
        for number, item in enumerate(items)
    ]
    with ctx.timed(stage):
        results = await all_measured(work, ctx, stage)
    refused = {error.item_id: error.error for error in failed(results)}
    require_few(refused, len(items))
    metric = ctx.config.evaluation.metric
    trajectories = scored(results)
    values = {t.item_id: t.score.value(metric) for t in trajectories}
    return Measured(values=values, set_aside=refused, trajectories=trajectories)


def require_few(refused: Mapping[str, str], total: int) -> None:
    """One, or a tenth, may be; a split of which nothing is left measures nothing."""
    if len(refused) > max(1, total // 10) or len(refused) == total:
        raise Stopped(
            f"{len(refused)} of {total} items cannot be measured; the last reason: {list(refused.values())[-1]}"
        )


async def gate(
    candidate: Applied, current: Mapping[str, float], ctx: Context, *, tag: str = "", rule: Rule = "strict"
) -> Verdict:
    """Decide between the candidate and the current skill, whose score on each selection item is `current`."""
    if not candidate.applied:
        return nothing(current, ctx)
    items = {item.id: item for item in ctx.env.items("val") if item.id in current}
    race = Race(settling_order(items, current, candidate.applied), current, rule)
    with ctx.timed("gate"):
        results = await run_race(candidate.skill, items, race, ctx, tag or f"gate-{ctx.step:04d}")
    prefix = race.deciding_prefix()
    require_few({i: race.refused[i] for i in prefix if i in race.refused}, len(race.order))
    counted = race.counted(prefix)
    kept = [item_id for item_id in prefix if item_id in counted]
    best_case = race.best_case(prefix) / len(counted)
    evidence = tuple(
        ItemEvidence(item_id=i, before=current[i], after=race.known[i], hard=results[i].score.hard) for i in kept
    )
    reason = "" if race.lost(prefix) else fallen_type(evidence, items, ctx.config.evaluation.regression_margin)
    accepted = not race.lost(prefix) and not reason
    return Verdict(
        decision="accept" if accepted else "reject",
        rule=rule,
        metric=ctx.config.evaluation.metric,
        before=math.fsum(current[i] for i in counted) / len(counted),
        after=best_case if len(prefix) == len(race.order) else None,
        at_most=best_case,
        items=len(counted),
        measured=len(kept),
        reason=reason,
        set_aside={i: race.refused[i] for i in prefix if i in race.refused},
        standing={row.item_id: row.after for row in evidence} if accepted else {},
        evidence=evidence,
        trajectories=tuple(results[i] for i in kept),
        telemetry={"rollouts": len(results), "saved": len(race.order) - len(results)},
    )


def settling_order(items: Mapping[str, Item], current: Mapping[str, float], edits: Sequence[Edit]) -> list[str]:
    """The items most likely to be failed first: those that the current skill fails, before all where the edits speak of
    other things; then, of those that it solves, the ones that share words with the edits."""
    words = {item_id: _words(item.content()) for item_id, item in items.items()}
    common = Counter(word for own in words.values() for word in own)
    spoken = set().union(*(_words(f"{edit.anchor} {edit.text}") for edit in edits))
    touched = {item_id: math.fsum(sorted(1 / common[word] for word in own & spoken)) for item_id, own in words.items()}
    return sorted(items, key=lambda i: (current[i], touched[i] if current[i] < 0.5 else -touched[i], i))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))


def nothing(current: Mapping[str, float], ctx: Context) -> Verdict:
    """The verdict on a candidate that equals the current skill."""
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


def fallen_type(evidence: Sequence[ItemEvidence], items: Mapping[str, Item], margin: float | None) -> str:
    """The regression guard: names a task type whose score falls by more than the margin; empty where none does."""
    if margin is None:
        return ""
    groups: dict[str, list[ItemEvidence]] = {}
    for row in evidence:
        groups.setdefault(items[row.item_id].type, []).append(row)
    for name, rows in sorted(groups.items()):
        before, after = (math.fsum(getattr(row, side) for row in rows) / len(rows) for side in ("before", "after"))
        if before - after > margin + _EPSILON:
            return f"task type '{name}' falls from {before:.2f} to {after:.2f}"
    return ""


class Race:
    """What is known of the candidate, and what that decides."""

    def __init__(self, order: list[str], current: Mapping[str, float], rule: Rule) -> None:
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

    def settled_without(self, missing: Sequence[RolloutError]) -> bool:
        """Is nothing missing, or does a prefix before the first missing item decide?"""
        if not missing:
            return True
        first = min(self.order.index(error.item_id) for error in missing)
        return any(self.lost(self.order[:end]) for end in range(first + 1))

    def useful(self, running: Collection[str], workers: int) -> bool:
        """Is another call worth its price now? Yes where those in flight will not settle it, at the losses seen so far;
        and where it takes a place that is free, if leaving that free would mean one more round of calls in the end."""
        slack = self.slack(self.order)
        if slack <= 0:
            return False
        solved = sum(self.current[i] >= 0.5 for i in running)
        if solved * self._likely_loss(solved=True) + (len(running) - solved) * self._likely_loss(solved=False) < slack:
            return True
        left = len(self.order) - len(self.known) - len(self.refused) - len(running)
        return 0 < (left % workers or workers) <= workers - len(running)

    def _likely_loss(self, *, solved: bool) -> float:
        """What an item that the current skill solves, or does not, will cost the candidate, by those seen so far."""
        seen = [1 - value for i, value in self.known.items() if (self.current[i] >= 0.5) == solved]
        return (math.fsum(seen) + (0.1 if solved else 1)) / (len(seen) + 1)


async def run_race(
    candidate: Skill, items: Mapping[str, Item], race: Race, ctx: Context, tag: str
) -> dict[str, Trajectory]:
    """Launch in order, never more than is useful at once; all that was launched is waited for and kept."""
    metric = ctx.config.evaluation.metric
    results: dict[str, Trajectory] = {}
    waiting = deque(enumerate(race.order))
    workers = ctx.config.hardware.workers
    running: dict[asyncio.Task[Trajectory | RolloutError], str] = {}
    lost: list[RolloutError] = []
    trouble: list[BaseException] = []
    rounds = 0
    while True:
        while waiting and not lost and not trouble and race.useful(running.values(), workers):
            number, item_id = waiting.popleft()
            work = roll_out_one(candidate, items[item_id], ctx, tag=tag, number=number, stage="gate")
            running[asyncio.create_task(work)] = item_id
        if not running:
            if race.settled_without(lost):
                break
            rounds += 1
            await wait_or_stop(rounds, lost, len(race.order), ctx, "gate")
            again = {error.item_id for error in lost}
            waiting.extendleft(place for place in reversed([*enumerate(race.order)]) if place[1] in again)
            lost = []
            continue
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del running[task]
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
        if trouble and not running:
            raise trouble[0]
    return results
