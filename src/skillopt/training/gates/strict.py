"""The strict gate: a candidate is accepted only if it scores higher on the validation split.

The candidate does the items in a fixed order. The items that the current skill fails come first, because they are most
likely to cause a rejection. The gate stops as soon as the candidate can no longer win. The decision is the same as
after all items, with fewer calls.

The verdict contains only the first items of the order, as many as the decision needs. So the verdict does not depend on
which calls end first.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from skillopt.record.events import Progress
from skillopt.record.step import ItemEvidence, Rule
from skillopt.skill import Applied, Edit, Skill
from skillopt.tasks.base import Item, RolloutError, Trajectory
from skillopt.training.context import Context
from skillopt.training.gates.base import EPSILON, Verdict, skipped_verdict
from skillopt.training.rollout import another_round, require_few, roll_out_one

SOLVED = 0.5
"""The minimum score of a solved item."""
HARM = 0.2
"""If an item's score falls by more than this, the candidate does harm."""
PROOF = 6
"""Before a candidate without a gain is rejected, it must do this many items that the current skill solves. These items
show whether the candidate does harm."""


async def strict_gate(
    skill: Skill,
    candidate: Applied,
    current: Mapping[str, float],
    ctx: Context,
    *,
    tag: str = "",
    rule: Rule = "strict",
) -> Verdict:
    """Decide between the candidate and the current skill. `current` has the current skill's score on each validation
    item."""
    if not candidate.applied:
        return skipped_verdict(current, ctx, gate="strict", rule=rule)
    with ctx.timed("gate"):
        tag = tag or f"gate-{ctx.step:04d}"
        progress, _ = await run_until_decided(EarlyStop, candidate, current, rule, ctx, tag)
    return early_verdict(progress, ctx, "strict")


def settling_order(
    items: Mapping[str, Item], current: Mapping[str, float], edits: Sequence[Edit], changed: Mapping[str, int]
) -> list[str]:
    """The items in the order in which they are done: first those that are most likely to cause a rejection. Items that
    the current skill fails come before items that it solves. Among equals, items whose score changed most often under
    earlier candidates (`changed`) come first. If items are still equal, failed items come first if they share few words
    with the edits, and solved items come first if they share many."""
    touched = shared_words(items)(edits)

    return sorted(
        items, key=lambda i: (current[i], -changed.get(i, 0), touched[i] if current[i] < SOLVED else -touched[i], i)
    )


def shared_words(items: Mapping[str, Item]) -> Callable[[Sequence[Edit]], dict[str, float]]:
    """Return a function that gets edits and returns how many words each item shares with them. Rare words weigh
    more."""
    words = {item_id: _words(item.content()) for item_id, item in items.items()}
    common = Counter(word for item_words in words.values() for word in item_words)

    def shared(edits: Sequence[Edit]) -> dict[str, float]:
        mentioned = set().union(*(_words(f"{edit.anchor} {edit.text}") for edit in edits))
        return {i: math.fsum(sorted(1 / common[word] for word in each & mentioned)) for i, each in words.items()}

    return shared


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))


class EarlyStop:
    """The candidate's scores so far, and whether they suffice for a decision. In every method, `shown` has the first
    items of the order."""

    def __init__(self, order: list[str], current: Mapping[str, float], rule: Rule) -> None:
        self.order = order
        self.current = current
        self.rule = rule
        self.scores: dict[str, float] = {}
        """The candidate's scores by item."""
        self.results: dict[str, Trajectory] = {}
        self.refused: dict[str, str] = {}

    def add(self, result: Trajectory | RolloutError, metric: str) -> list[RolloutError]:
        """Record a result. If the item must be tried again, return the error in a list; else return an empty list."""
        if isinstance(result, Trajectory):
            self.results[result.item_id] = result
            self.scores[result.item_id] = result.score.value(metric)
        elif result.refused:
            self.refused[result.item_id] = result.error
        else:
            return [result]
        return []

    def counted(self, shown: Sequence[str]) -> list[str]:
        """All items of the order, except those of `shown` that the endpoint refused."""
        refused = self.refused_in(shown)
        return [item_id for item_id in self.order if item_id not in refused]

    def refused_in(self, shown: Sequence[str]) -> dict[str, str]:
        return {item_id: self.refused[item_id] for item_id in shown if item_id in self.refused}

    def best_case(self, shown: Sequence[str]) -> float:
        """The highest sum of scores that the candidate can reach. It reaches this sum if it solves every item that is
        not in `shown`."""
        values = [self.scores[i] for i in shown if i in self.scores]
        return math.fsum(values) + len(self.counted(shown)) - len(values)

    def slack(self, shown: Sequence[str]) -> float:
        """How far the candidate's highest possible sum of scores is above the current skill's sum. If this is 0 or
        less, the candidate cannot win."""
        margin = self.best_case(shown) - math.fsum(self.current[i] for i in self.counted(shown))
        return margin - EPSILON if self.rule == "strict" else margin + EPSILON

    def beaten(self, shown: Sequence[str]) -> bool:
        return self.slack(shown) <= 0

    def decided(self, shown: Sequence[str]) -> bool:
        """True if the items in `shown` suffice to reject the candidate and to say whether it does harm."""
        return self.beaten(shown) and self.told_apart(shown)

    def told_apart(self, shown: Sequence[str]) -> bool:
        """True if it is known whether the candidate does harm: it broke an item, or it was tried on enough items
        that the current skill solves."""
        seen = [i for i in shown if i in self.scores and self.current[i] >= SOLVED]
        harm = any(self.scores[i] < self.current[i] - HARM for i in shown if i in self.scores)
        return self.rule == "keep" or harm or self.beaten(()) or len(seen) >= self._proof()

    def _proof(self) -> int:
        return min(PROOF, sum(self.current[i] >= SOLVED for i in self.counted(self.order)))

    def won(self, items: Mapping[str, Item]) -> bool:
        """True if the candidate wins even if it fails every remaining item: the score of no task type can fall any
        more, and the sum is higher. But if the candidate has failed no item so far, the result is False: it may solve
        all items, and then the run ends."""
        gains: dict[str, float] = {}
        for i in self.counted(self.order):
            gains[items[i].type] = gains.get(items[i].type, 0.0) + self.scores.get(i, 0.0) - self.current[i]
        safe = min(gains.values(), default=-1.0) >= -EPSILON and math.fsum(gains.values()) > EPSILON
        return safe and min(self.scores.values()) < 1

    def deciding_prefix(self) -> list[str]:
        """The first items of the order, as few as suffice for a decision; all items if fewer do not suffice."""
        prefixes = (self.order[:end] for end in range(len(self.order)))
        return next((prefix for prefix in prefixes if self.decided(prefix)), self.order)

    def settled_without(self, missing: Sequence[RolloutError]) -> bool:
        """True if the gate is done: no item is missing, or the items before the first missing item suffice for a
        decision."""
        if not missing:
            return True
        first = min(self.order.index(error.item_id) for error in missing)
        return any(self.decided(self.order[:end]) for end in range(first + 1))

    def useful(self, running: Collection[str], workers: int) -> bool:
        """True if one more item should start now. One possible reason: judged by the losses so far, the calls in flight
        will probably not suffice for a decision. Another reason: the idle workers can already do the items that would
        otherwise need one more round of calls at the end."""
        slack = self.slack(self.order)
        if len(running) >= workers:  # starting a call that must wait for a worker saves no time
            return False
        if slack <= 0:
            under_way = sum(i in self.scores or i in running for i in self.order if self.current[i] >= SOLVED)
            return not self.told_apart(self.order) and under_way < self._proof()
        solved = sum(self.current[i] >= SOLVED for i in running)
        if solved * self._likely_loss(solved=True) + (len(running) - solved) * self._likely_loss(solved=False) < slack:
            return True
        left = len(self.order) - len(self.scores) - len(self.refused) - len(running)
        return 0 < (left % workers or workers) <= workers - len(running)

    def _likely_loss(self, *, solved: bool) -> float:
        """The expected loss on an item, from the results so far; `solved` says whether the current skill solves the
        item."""
        seen = [1 - value for i, value in self.scores.items() if (self.current[i] >= SOLVED) == solved]
        return (math.fsum(seen) + (0.1 if solved else 1)) / (len(seen) + 1)


P = TypeVar("P", bound=EarlyStop)


async def run_until_decided(
    kind: type[P], candidate: Applied, current: Mapping[str, float], rule: Rule, ctx: Context, tag: str
) -> tuple[P, dict[str, Item]]:
    """Let the candidate do the items of `current` in order, as many at once as is useful, until the gate can decide.
    Every call that was started is finished, and its reply is kept."""
    split = ctx.env.items("val")
    items = {item.id: item for item in split if item.id in current}
    progress = kind(settling_order(items, current, candidate.applied, ctx.changed), current, rule)
    metric = ctx.config.evaluation.metric
    waiting = deque(enumerate(progress.order))
    workers = ctx.config.role("target").workers
    running: dict[asyncio.Task[Trajectory | RolloutError], str] = {}
    unmeasured: list[RolloutError] = []
    alone: set[str] = set()
    errors: list[BaseException] = []
    rounds = 0
    while True:
        free = workers + ctx.target.throttle.waiting  # a call that waits for its next try does not occupy a worker
        while waiting and not unmeasured and not errors and progress.useful(running.values(), free):
            number, item_id = waiting.popleft()
            work = roll_out_one(candidate.skill, items[item_id], ctx, tag=tag, number=number, stage="gate")
            running[asyncio.create_task(work)] = item_id
        if not running:
            if progress.settled_without(unmeasured):
                break
            rounds += 1
            alone |= {error.item_id for error in unmeasured if error.alone}
            failed = {error.item_id: error.error for error in unmeasured}
            if await another_round(rounds, unmeasured, alone, len(progress.order), ctx, "gate"):
                waiting.extendleft(pair for pair in reversed([*enumerate(progress.order)]) if pair[1] in failed)
            else:
                progress.refused |= failed
                rounds = 0
            unmeasured = []
            continue
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del running[task]
            if error := task.exception():
                errors.append(error)
                continue
            unmeasured += progress.add(task.result(), metric)
            ctx.emit(Progress(stage="gate", done=len(progress.results), total=len(progress.order)))
        if ctx.expect and not errors and progress.won(items):
            ctx.expect(candidate.skill)
            ctx = replace(ctx, expect=None)
        if errors and not running:
            raise errors[0]
    require_few(progress.refused_in(progress.deciding_prefix()), len(items), set_aside=len(split) - len(items))
    return progress, items


def early_verdict(progress: EarlyStop, ctx: Context, gate: str) -> Verdict:
    """The verdict from the first items that suffice for a decision, with one sample per item."""
    prefix, results = progress.deciding_prefix(), progress.results
    counted = progress.counted(prefix)
    kept = [item_id for item_id in prefix if item_id in counted]
    best_case = progress.best_case(prefix) / len(counted)
    evidence = tuple(
        ItemEvidence(item_id=i, before=progress.current[i], after=progress.scores[i], hard=results[i].score.hard)
        for i in kept
    )
    beaten = progress.beaten(prefix)
    return Verdict(
        decision="reject" if beaten else "accept",
        gate=gate,
        rule=progress.rule,
        metric=ctx.config.evaluation.metric,
        before=math.fsum(progress.current[i] for i in counted) / len(counted),
        after=best_case if len(prefix) == len(progress.order) else None,
        at_most=best_case,
        items=len(counted),
        measured=len(kept),
        set_aside=progress.refused_in(prefix),
        known_scores={row.item_id: row.after for row in evidence} if not beaten else {},
        evidence=evidence,
        trajectories=tuple(results[i] for i in kept),
        telemetry={"rollouts": len(results), "saved": len(progress.order) - len(results)},
    )
