"""A candidate against the current skill's scores: in which order items are done, and when enough is known."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence

from skillopt.core.context import Context
from skillopt.core.retry import wait_or_stop
from skillopt.core.rollout import roll_out_one
from skillopt.envs.base import Item, RolloutError, Trajectory
from skillopt.gates.base import EPSILON, Rule
from skillopt.skill import Edit, Skill


def settling_order(items: Mapping[str, Item], current: Mapping[str, float], edits: Sequence[Edit]) -> list[str]:
    """Items that the candidate will most likely fail come first: those that the current skill fails, above all where
    the edits do not mention them; then, of those that it solves, the ones that share words with the edits."""
    touched = shared_words(items)(edits)
    return sorted(items, key=lambda i: (current[i], touched[i] if current[i] < 0.5 else -touched[i], i))


def shared_words(items: Mapping[str, Item]) -> Callable[[Sequence[Edit]], dict[str, float]]:
    """A function that says how much each item has in common with some edits: rare words count more."""
    words = {item_id: _words(item.content()) for item_id, item in items.items()}
    common = Counter(word for own in words.values() for word in own)

    def shared(edits: Sequence[Edit]) -> dict[str, float]:
        mentioned = set().union(*(_words(f"{edit.anchor} {edit.text}") for edit in edits))
        return {i: math.fsum(sorted(1 / common[word] for word in own & mentioned)) for i, own in words.items()}

    return shared


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))


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
        """How much the candidate may still lose; at 0 or below it is beaten."""
        margin = self.best_case(shown) - math.fsum(self.current[i] for i in self.counted(shown))
        return margin - EPSILON if self.rule == "strict" else margin + EPSILON

    def beaten(self, shown: Sequence[str]) -> bool:
        return self.slack(shown) <= 0

    def deciding_prefix(self) -> list[str]:
        """The shortest prefix of the order that settles it; the whole order where none does."""
        prefixes = (self.order[:end] for end in range(len(self.order)))
        return next((prefix for prefix in prefixes if self.beaten(prefix)), self.order)

    def settled_without(self, missing: Sequence[RolloutError]) -> bool:
        """Is nothing missing, or does a prefix before the first missing item decide?"""
        if not missing:
            return True
        first = min(self.order.index(error.item_id) for error in missing)
        return any(self.beaten(self.order[:end]) for end in range(first + 1))

    def useful(self, running: Collection[str], workers: int) -> bool:
        """Is another call worth its price now? Yes where those in flight will not settle it, at the losses seen so far;
        and where it takes a place that is free, if leaving that free would mean one more round of calls in the end."""
        slack = self.slack(self.order)
        if slack <= 0 or len(running) >= workers:  # a call that has to wait for a place saves no time
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
    workers = ctx.config.role("target").workers
    running: dict[asyncio.Task[Trajectory | RolloutError], str] = {}
    unmeasured: list[RolloutError] = []
    trouble: list[BaseException] = []
    rounds = 0
    while True:
        while waiting and not unmeasured and not trouble and race.useful(running.values(), workers):
            number, item_id = waiting.popleft()
            work = roll_out_one(candidate, items[item_id], ctx, tag=tag, number=number, stage="gate")
            running[asyncio.create_task(work)] = item_id
        if not running:
            if race.settled_without(unmeasured):
                break
            rounds += 1
            await wait_or_stop(rounds, unmeasured, len(race.order), ctx, "gate")
            again = {error.item_id for error in unmeasured}
            waiting.extendleft(place for place in reversed([*enumerate(race.order)]) if place[1] in again)
            unmeasured = []
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
                unmeasured.append(result)
            ctx.emit("progress", stage="gate", done=len(results), total=len(race.order))
        if trouble and not running:
            raise trouble[0]
    return results
