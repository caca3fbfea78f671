"""Statistics of paired measurements. Exact formulas are used if they exist; no other package is needed.

The tests below compare two skills item by item. They assume only this: if neither skill is better, each sample of an
item could equally well come from either skill. They are valid for few items, for any score between 0 and 1, and for
items of very different difficulty.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import NormalDist, correlation, fmean, stdev

Samples = tuple[Sequence[float], Sequence[float]]
"""The scores of one item: first those under the current skill, then the same number under the candidate."""

_DRAWS = 4000
"""The number of random permutations. They replace the exact formula if any score is neither 0 nor 1."""
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for 95 %, two-sided: the values for 1, 2, … 10 degrees of freedom."""


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Confidence interval of the mean: Wilson's for scores of 0 and 1, else a bootstrap interval; None without
    values."""
    if not values:
        return None
    if all(value in (0, 1) for value in values):
        return wilson(sum(values), len(values), confidence)
    return bootstrap(values, confidence)


def wilson(successes: float, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's confidence interval of a share; also valid for a share of 0 or 1."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap(values: Sequence[float], confidence: float = 0.95, draws: int = 2000) -> tuple[float, float]:
    """Percentile bootstrap of the mean; the same values always give the same interval."""
    draw = random.Random(f"bootstrap/{len(values)}")  # noqa: S311
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(draws))
    tail = (1 - confidence) / 2
    return means[round(tail * (draws - 1))], means[round((1 - tail) * (draws - 1))]


def gain_interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Confidence interval of the mean difference between two skills; None without items.

    The width is never 0: even if all measured items improved, further items might not improve. If every difference is
    -1, 0 or 1, or if all differences are equal, one item with 1 and one with -1 are added (Bonett and Price); else the
    bootstrap is used.
    """
    if not differences:
        return None
    if len(set(differences)) > 1 and not all(each in (-1, 0, 1) for each in differences):
        return bootstrap(differences, confidence)
    padded = [*differences, 1.0, -1.0]
    mean = fmean(padded)
    spread = math.sqrt(fmean((each - mean) ** 2 for each in padded) / len(padded))
    half = NormalDist().inv_cdf((1 + confidence) / 2) * spread
    return max(-1.0, mean - half), min(1.0, mean + half)


def smallest_sure(items: int) -> float:
    """The smallest gain (as a share of `items`) whose interval does not contain zero, if no item gets worse."""
    for better in range(1, items + 1):
        bounds = gain_interval([1.0] * better + [0.0] * (items - better))
        if bounds and bounds[0] > 0:
            return better / items
    return 1.0


def seeds_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a mean over a few runs (Student's t); None for a single run."""
    if len(values) < 2:
        return None
    half = student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def student_t(freedom: int) -> float:
    """Student's t for 95 %, two-sided; above ten degrees of freedom, it comes from a series (error below 0.001)."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def sign_test(wins: int, losses: int) -> float:
    """McNemar's exact test, one-sided: the probability that, by chance alone, at least `wins` of the differing items
    are wins."""
    total = wins + losses
    return sum(math.comb(total, k) for k in range(wins, total + 1)) / int(2**total)


def permutation_p(samples: Sequence[Samples]) -> float:
    """The one-sided p-value: the probability that a candidate looks at least this good by chance, although it is not
    better.

    The samples of each item are assigned to the two skills in every possible way. The weight of an item is the square
    of its difference, so a few items that always differ weigh more than many that sometimes differ. With one sample of
    each item, this is McNemar's exact test.
    """
    if all(value in (0, 1) for pair in samples for side in pair for value in side):
        return _exact([(len(a), int(sum(a)), int(sum(b))) for a, b in samples])
    return _drawn(samples)


def _weight(difference: float) -> float:
    return math.copysign(difference * difference, difference)


def _exact(counts: Sequence[tuple[int, int, int]]) -> float:
    """The exact p-value over all permutations, calculated item by item: the sums of one item have a hypergeometric
    distribution."""
    reach: dict[int, float] = {0: 1.0}
    observed = 0
    for repeats, before, after in counts:
        observed += int(_weight(after - before))
        solved = before + after
        deals = math.comb(2 * repeats, repeats)
        one = {
            int(_weight(2 * k - solved)): math.comb(solved, k) * math.comb(2 * repeats - solved, repeats - k) / deals
            for k in range(max(0, solved - repeats), min(solved, repeats) + 1)
        }
        if len(one) > 1:
            summed: dict[int, float] = {}
            for total, p in reach.items():
                for step, q in one.items():
                    summed[total + step] = summed.get(total + step, 0.0) + p * q
            reach = summed
        else:
            observed -= next(iter(one))
    return min(1.0, math.fsum(p for total, p in reach.items() if total >= observed))


def _drawn(samples: Sequence[Samples]) -> float:
    """The p-value from random permutations with a fixed seed; the observed scores count as one more permutation. The
    p-value does not depend on the order of samples and items. Items whose samples are all equal are left out, because
    permuting their samples changes nothing."""
    observed = math.fsum(_weight(math.fsum(b) - math.fsum(a)) for a, b in samples)
    pools = sorted(sorted([*a, *b]) for a, b in samples if len({*a, *b}) > 1)
    sums = [math.fsum(pool) for pool in pools]
    draw = random.Random(f"deals/{len(pools)}")  # noqa: S311
    hits = 0
    for _ in range(_DRAWS):
        dealt = (math.fsum(draw.sample(pool, len(pool) // 2)) for pool in pools)
        total = math.fsum(_weight(2 * half - whole) for half, whole in zip(dealt, sums, strict=True))
        hits += total >= observed - 1e-9
    return (1 + hits) / (1 + _DRAWS)


def smallest_detectable(items: int, noise: float, alpha: float = 0.05) -> float:
    """An estimate of the smallest true gain that the paired gate finds in four of five cases, as a share of the items.

    `noise` is the share of rollouts whose outcome flips. Without noise one item is enough. With noise, the gate must
    distinguish items that really improved from items that differ by chance. bench/gate.py checks the estimate by
    simulation.
    """
    repeats = 5
    step, spread = (1 - 2 * noise) ** 2, 2 * noise * (1 - noise)
    chosen = spread * items
    quiet = 3 * spread**2 * repeats**2 + repeats * spread * (1 - 3 * spread)  # variance under the null hypothesis
    level, power = NormalDist().inv_cdf(1 - alpha), NormalDist().inv_cdf(0.9)  # 0.9: the normal form is optimistic
    for better in range(1, items):
        found = better * (1 - spread)
        signal = found * (step * repeats**2 + repeats * spread)
        dealt = found * 3 * (repeats / 2) ** 2 / 2  # variance from the better items when their samples are permuted
        own = found * 4 * step * repeats**3 * spread + found * spread * (step * repeats**2) ** 2
        if signal >= level * math.sqrt(chosen * quiet + dealt) + power * math.sqrt(chosen * quiet + own):
            return better / items
    return 1.0


def kappa(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Cohen's kappa of two raters who say yes or no; None if all answers of both raters are the same."""
    if not first:
        return None
    a, b = fmean(first), fmean(second)
    agree, chance = fmean(x == y for x, y in zip(first, second, strict=True)), a * b + (1 - a) * (1 - b)
    return None if chance > 1 - 1e-9 else (agree - chance) / (1 - chance)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The rank correlation, with mean ranks for equal values; None if all values of one side are equal."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return correlation(_ranks(first), _ranks(second))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]
