"""The test of the paired gate: fresh samples of both skills on the items on which they differ, round by round.

This module does no rollouts. `PairedTest.run` is a generator: it yields the samples that it needs, and its caller sends
their scores. So the gate, the tests and the simulations of bench/gate.py share the same code.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from skillopt.record.step import Rule
from skillopt.statistics import permutation_p

Outcome = Literal["accept", "reject", "indecisive"]
T = TypeVar("T")

_EARLY = 0.12
"""The share of alpha that all rounds before the last one use together. So clear cases end early, and the last round has
most of alpha."""
_HOPELESS = 0.5
"""From the second round on, a candidate whose p-value is above this has no chance, and the rounds end."""
_SETTLED = 2
"""If all samples of an item are equal after this many rounds, the item is not sampled again."""
Side = Literal["current", "candidate"]


class Ask(NamedTuple):
    """One fresh sample that the test asks for."""

    item_id: str
    side: Side
    name: str
    """The name of the sample: `r1`, `r2` … in the repeats, `confirm` in the confirmation."""


Samples: TypeAlias = Generator[list[Ask], list[float | None], T]
"""A generator that yields the samples that it needs next, and is sent their scores (None if the endpoint refuses the
item)."""


@dataclass
class PairedTest:
    """Compares two skills by fresh samples of the items on which they differ."""

    order: list[str]
    current: Mapping[str, float]
    screened: dict[str, float]
    """The candidate's score in the screen, by item."""
    metric: str
    rule: Rule
    alpha: float
    max_repeats: int
    samples: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Fresh scores of the current skill and of the candidate, by item."""
    second: dict[str, float] = field(default_factory=dict)
    """The candidate's score in the confirmation, by item."""
    refused: set[str] = field(default_factory=set)
    repeats: int = 0
    p: float = 1.0
    """The p-value of the fresh samples: the probability of samples as good as these if the candidate is not better."""

    def run(self) -> Samples[Outcome]:
        """Ask for samples until there is a decision."""
        self._add_items(item for item in self.order if self._differs(self.screened[item], self.current[item]))
        if self.rule == "keep":
            return (yield from self._keep())
        convinced = False
        while self.samples and self.repeats < self.max_repeats:
            self.repeats += 1
            yield from self._sample_rounds()
            if self.gain > 0 and self.p <= (2 * self.alpha if convinced else self._level()):
                if not convinced:
                    convinced = True
                    yield from self._confirm()
                if self.gain > 0 and self.p <= 2 * self.alpha:
                    return "accept"
            if self.repeats > 1 and self.p > _HOPELESS:
                break
        return "indecisive" if self.gain > 0 else "reject"

    def _keep(self) -> Samples[Outcome]:
        """Decide by the rule `keep`: `reject` if fresh samples show a loss, else `accept` if the score did not fall,
        else `indecisive`."""
        while self.samples and self.repeats < self.max_repeats:
            self.repeats += 1
            yield from self._sample_rounds()
            if self.gain > 0 and self.p <= self._level():
                break
            if permutation_p([(after, before) for before, after in self.samples.values()]) <= self._level():
                return "reject"
        return "accept" if self.gain >= 0 else "indecisive"

    @property
    def gain(self) -> float:
        """The sum of the candidate's gains over the items that have fresh samples. On all other items, the two skills
        are treated as equal."""
        total = math.fsum(fmean(after) - fmean(before) for before, after in self.samples.values())
        return total if abs(total) > 1e-9 else 0.0

    def _level(self) -> float:
        """The largest p-value at which this round accepts the candidate. The values of all rounds add up to alpha."""
        if self.repeats < self.max_repeats:
            return self.alpha * _EARLY / (self.max_repeats - 1)
        return self.alpha * (1 - _EARLY if self.max_repeats > 1 else 1)

    def _differs(self, after: float, before: float) -> bool:
        """True if two scores of an item differ: with the metric `hard` by at least 0.5, with other metrics by any
        amount."""
        return abs(after - before) >= (0.5 if self.metric == "hard" else 1e-9)

    def _add_items(self, items: Iterable[str]) -> None:
        self.samples |= {item: ([], []) for item in items if item not in self.samples}

    def _sample_rounds(self) -> Samples[None]:
        """Take samples of both skills, until each item has one sample per skill and round. Settled items get no more
        samples."""
        for most in sorted({min(_SETTLED, self.repeats), self.repeats}):
            asks = [
                Ask(item, side, f"r{number}")
                for item in self.order
                if item in self.samples and not self._settled(item)
                for number in range(len(self.samples[item][0]) + 1, most + 1)
                for side in ("current", "candidate")
            ]
            for ask, value in zip(asks, (yield asks), strict=True):
                if value is None:
                    self.refused.add(ask.item_id)
                else:
                    self.samples[ask.item_id][ask.side == "candidate"].append(value)
            self.samples = {item: pair for item, pair in self.samples.items() if item not in self.refused}
        self.p = permutation_p(list(self.samples.values()))

    def _settled(self, item: str) -> bool:
        """True if all samples of the item are equal after enough rounds. This rule ignores which skill a
        sample is from, so the test stays valid."""
        before, after = self.samples[item]
        return len(before) >= _SETTLED and len({*before, *after}) == 1

    def _confirm(self) -> Samples[None]:
        """Let the candidate repeat the items that have no fresh samples, because the screen may have missed a loss by
        luck."""
        others = [
            Ask(item, "candidate", "confirm")
            for item in self.order
            if item not in self.samples and (self.metric != "hard" or self.current[item] >= 0.5)
        ]
        for ask, value in zip(others, (yield others), strict=True):
            if value is None:
                self.refused.add(ask.item_id)
            else:
                self.second[ask.item_id] = value
        self._add_items(item for item, value in self.second.items() if self._differs(value, self.current[item]))
        yield from self._sample_rounds()
