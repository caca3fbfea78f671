"""Decides whether a skill is better than a base, no worse, or worse. Samples are taken until the verdict is sure.

This module makes no rollouts. `Trial.play` asks for samples and gets their scores, so the check, the tests and the
simulations of bench/check.py share the same rules.

1. Screen. Both skills do each item once, in a fixed random order and in blocks. The check ends if the difference is
   already clear.
2. Repeats. With a noisy target, both skills repeat the items on which they differ, and only these fresh samples decide.
   This is the test of the paired gate.
3. Rounds. To show "no worse" with a noisy target, both skills do every item once more in each round, until the verdict
   is sure or more rounds would not help.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean
from typing import Literal

from skillopt.record.results import CheckWord as Word
from skillopt.statistics import permutation_p, sign_test
from skillopt.training.gates.paired_test import Ask, PairedTest, Samples

Pair = tuple[float, float]
"""Two scores: of one sample with the base, and of one sample with the skill."""

EPSILON = 1e-9
_BLOCKS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
"""Numbers of items after which the screen may end; it may also end after the last item."""
_SCREEN = 0.2
"""The share of alpha that the screen of a noisy target uses; the paired test uses the rest."""
_SURELY = 0.75
"""An item is treated as changed if its mean scores under the two skills differ by at least this much."""
_LEANS = 0.2
"""If the p-value is below this limit, the skill may be better: the check continues even if "no worse" is sure."""
_HOPELESS = 0.3
"""From its second round on, the paired test stops if both p-values (for `better` and for `worse`) exceed this limit."""
_OPTIMISM = 0.5
"""The number of standard errors that are added to the estimated difference to decide whether more rounds would help."""


@dataclass
class Trial:
    """The samples of two skills on the same items, and the rules for the verdict. `order`: items in random order."""

    order: Sequence[str]
    noisy: bool
    metric: str = "hard"
    margin: float = 0.05
    alpha: float = 0.05
    """The maximum probability of a false verdict on a change without effect: half for `better`, half for `worse`."""
    max_repeats: int = 5
    fixed: int | None = None
    """The number of samples of every item; None: samples are taken until the verdict is sure."""
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    """Pairs of scores by item, in the order of the rounds: first the screen, then the paired test."""
    refused: set[str] = field(default_factory=set)
    looks: int = 0
    repeats: int = 0
    """The number of rounds of fresh samples."""
    p: float = 1.0
    """The two-sided p-value of the test that decided; if none decided, of the last test."""
    sure_by: str = ""
    """The stage that decided: `screen`, `all items` or `repeats`."""

    def play(self) -> Samples[Word]:
        """Ask for samples until there is a verdict. Return the verdict."""
        if self.fixed:
            return (yield from self._all(self.fixed))
        verdict = yield from self._screen()
        if verdict is None and not self.noisy:
            verdict, self.sure_by = self._exact(), "all items"
        if verdict is None:
            verdict = yield from self._paired_test()
        if verdict is None:
            verdict = yield from self._rounds()
        return verdict

    # The measured difference

    @property
    def measured(self) -> list[str]:
        return [item for item in self.order if self.pairs.get(item) and item not in self.refused]

    @property
    def difference(self) -> float:
        """The mean of the items' differences. If both skills agreed on an item in the screen, its difference is 0."""
        items = self.measured
        return fmean(self._mean(item) for item in items) if items else 0.0

    def _mean(self, item: str) -> float:
        return fmean(after - before for before, after in self.pairs[item])

    def _first(self) -> list[Pair]:
        return [self.pairs[item][0] for item in self.measured]

    # Every item equally often

    def _all(self, times: int) -> Samples[Word]:
        for number in range(1, times + 1):
            yield from self._ask([item for item in self.order if item not in self.refused], f"r{number}")
        self.repeats, self.sure_by = times - 1, "all items"
        samples = [([b for b, _ in self.pairs[item]], [s for _, s in self.pairs[item]]) for item in self.measured]
        up, down = permutation_p(samples), permutation_p([(after, before) for before, after in samples])
        self.p = min(1.0, 2 * min(up, down))
        if not self.noisy:
            return self._exact()
        if up <= self.alpha / 2:
            return "better"
        if down <= self.alpha / 2 and self.difference < -self.margin - EPSILON:
            return "worse"
        return "no worse" if self._shown(times) else "cannot tell"

    # 1. The screen

    def _screen(self) -> Samples[Word | None]:
        ends = [end for end in _BLOCKS if end < len(self.order)] + [len(self.order)]
        begin = 0
        for end in ends:
            yield from self._ask(list(self.order[begin:end]), "s")
            begin = end
            if verdict := self._look(len(ends), last=end == len(self.order)):
                self.sure_by = "screen"
                return verdict
        return None

    def _look(self, looks: int, *, last: bool) -> Word | None:
        """The verdict from the items so far; None if it is not sure. For a deterministic target it is also None after
        the last item, because then `_exact` decides."""
        self.looks += 1
        if last and not self.noisy:
            return None
        first = self._first()
        up, down = _p(first), _p([(after, before) for before, after in first])
        level = self.alpha / 2 * (_SCREEN if self.noisy else 1) / looks
        self.p = min(1.0, 2 * min(up, down))
        if up <= level:
            return "better"
        if down <= level and self.difference < -self.margin - EPSILON:
            return "worse"
        if self.noisy:
            return "no worse" if last and up > _LEANS and self._shown(1) else None
        return "no worse" if self.difference <= 0 and (self._settled() or self._few_losses(looks)) else None

    def _settled(self) -> bool:
        """True if the skill is no worse even if it fails all remaining items (with a deterministic target)."""
        left = [item for item in self.order if item not in self.pairs]
        total = math.fsum(self._mean(item) for item in self.measured) - len(left)
        return total >= -self.margin * (len(self.measured) + len(left)) - EPSILON

    def _few_losses(self, looks: int) -> bool:
        """True if the losses so far are so few that the losses on all items very probably stay within the margin
        (hypergeometric test)."""
        if self.metric != "hard":
            return False
        seen, total = len(self.measured), len(self.order) - len(self.refused)
        needed = math.floor(self.margin * total + EPSILON) + 1
        losses = sum(after < before for before, after in self._first())
        if needed > total:
            return True
        ways = sum(math.comb(needed, k) * math.comb(total - needed, seen - k) for k in range(min(losses, needed) + 1))
        return ways / math.comb(total, seen) <= self.alpha / looks

    def _exact(self) -> Word:
        """The verdict after all items, if the target is deterministic. More samples would change nothing."""
        more = self.difference > self.margin + EPSILON and self._one_way(1)
        if more or (self.difference > EPSILON and _p(self._first()) <= self.alpha):
            return "better"
        if self.difference >= -self.margin - EPSILON:
            return "no worse"
        return "worse" if self._one_way(-1) else "cannot tell"

    def _one_way(self, sign: int) -> bool:
        """True if all changed items changed in the direction of `sign`, or so many of them that it is not by chance.

        Any rewording changes some items in both directions, even with a deterministic target. So more wins than losses
        are not enough for a verdict.
        """
        changes = [sign * self._mean(item) for item in self.measured]
        if self.metric == "hard":
            won, lost = (sum(change * way >= _SURELY for change in changes) for way in (1, -1))
            return not lost or sign_test(won, lost) <= self.alpha
        return min(changes) > -EPSILON or permutation_p([((0.0,), (change,)) for change in changes]) <= self.alpha

    # 2. The paired test

    def _paired_test(self) -> Samples[Word | None]:
        duel = _Duel(
            order=self.measured,
            current={item: self.pairs[item][0][0] for item in self.measured},
            screened={item: self.pairs[item][0][1] for item in self.measured},
            metric=self.metric,
            rule="strict",
            alpha=self.alpha / 2 * (1 - _SCREEN),
            max_repeats=self.max_repeats,
            share=self.margin * len(self.measured),
        )
        outcome = yield from duel.run()
        self.refused |= duel.refused
        self.repeats = duel.repeats
        for item, (before, after) in duel.samples.items():
            self.pairs[item] += zip(before, after, strict=True)
        if duel.repeats:
            self.p = min(1.0, 2 * min(duel.p, duel.down))
        self.sure_by = "repeats"
        if outcome == "accept" and self._one_way(1):
            return "better"
        return "worse" if outcome == "reject" and self._one_way(-1) else None

    # 3. The rounds

    def _rounds(self) -> Samples[Word]:
        """Sample every item equally often. If only the items that differ were repeated, the difference would be
        biased."""
        done = 1
        while not self._shown(done):
            if done > self.max_repeats or not self._hope(done):
                return "cannot tell"
            done += 1
            behind = [item for item in self.measured if len(self.pairs[item]) < done]
            yield from self._ask(behind, f"a{done}")
            self.repeats = max(self.repeats, done - 1)
        return "no worse"

    def _shown(self, rounds: int) -> bool:
        """True if this many rounds show that the skill's score falls by less than the margin, or rises."""
        middle, error = self.estimate(rounds)
        return middle - self.quantile * error > -self.margin

    def _hope(self, rounds: int) -> bool:
        """True if the last possible round would show "no worse", assuming that the difference stays about the same."""
        _, error = self.estimate(rounds)
        middle = self.difference + _OPTIMISM * error
        return middle - self.quantile * error * math.sqrt(rounds / (self.max_repeats + 1)) > -self.margin

    @property
    def quantile(self) -> float:
        """The quantile of the normal distribution that the test after each round uses. It keeps the error of all these
        tests together within `alpha` (about Pocock's boundary)."""
        looks = self.max_repeats + 1
        return NormalDist().inv_cdf(1 - self.alpha / (1 + 1.3 * math.log(looks)))

    def estimate(self, rounds: int) -> Pair:
        """The mean difference in the first `rounds` rounds, and its standard error. The error covers the target's noise
        on these items, nothing else.

        One round cannot separate noise from a real difference, so each difference is treated as noise. The sum of
        squares is raised by 0.5, so that a few equal samples do not look certain.
        """
        rows = [[after - before for before, after in self.pairs[item][:rounds]] for item in self.measured]
        means = [fmean(row) for row in rows]
        if rounds == 1:
            spread = (math.fsum(mean * mean for mean in means) + 0.5) / (len(rows) + 1)
        else:
            within = math.fsum((value - mean) ** 2 for row, mean in zip(rows, means, strict=True) for value in row)
            spread = (within + 0.5) / (len(rows) * (rounds - 1) + 1)
        return fmean(means), math.sqrt(spread / (len(rows) * rounds))

    def _ask(self, items: list[str], name: str) -> Samples[None]:
        """Ask for one sample of each item with each of the two skills."""
        values = yield [Ask(item, side, name) for item in items for side in ("current", "candidate")]
        for number, item in enumerate(items):
            before, after = values[2 * number : 2 * number + 2]
            if before is None or after is None:
                self.refused.add(item)
            else:
                self.pairs.setdefault(item, []).append((before, after))


@dataclass
class _Duel(PairedTest):
    """The test of the paired gate in both directions. Here `accept` means that the skill is better, `reject` that it is
    worse."""

    share: float = 0.0
    """The margin times the number of items: the drop that is still allowed, in items."""
    down: float = 1.0
    """The p-value of the test whether the skill is worse."""

    def run(self) -> Samples[Literal["accept", "reject", "indecisive"]]:
        self._add_items(item for item in self.order if self._differs(self.screened[item], self.current[item]))
        confirmed = False
        while self.samples and self.repeats < self.max_repeats:
            self.repeats += 1
            yield from self._both()
            if self.p <= self._level():
                return "accept"
            if self.down <= self._level():
                if self.gain >= -self.share - EPSILON and not confirmed:
                    confirmed = True
                    yield from self._confirm()
                    self.down = self._reverse()
                if self.gain < -self.share - EPSILON and self.down <= 2 * self.alpha:
                    return "reject"
            if self.repeats > 1 and min(self.p, self.down) > _HOPELESS:
                break
        return "indecisive"

    def _both(self) -> Samples[None]:
        yield from self._sample_rounds()
        self.down = self._reverse()

    def _reverse(self) -> float:
        return permutation_p([(after, before) for before, after in self.samples.values()])


def _p(pairs: Sequence[Pair]) -> float:
    """The p-value: if there is no real difference, the probability that the second scores of the pairs are better by at
    least as much as observed."""
    if all(value in (0, 1) for pair in pairs for value in pair):
        return sign_test(sum(b > a for a, b in pairs), sum(b < a for a, b in pairs))
    return permutation_p([((before,), (after,)) for before, after in pairs])
