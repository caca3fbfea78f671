"""What every score is compared with: the empty skill, doing nothing, and always giving the most frequent answer."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable

from skillopt.record.results import MajorityScore, ScoreWithInterval
from skillopt.statistics import interval
from skillopt.tasks.base import Env, Item, ScorerError, closed_set, is_noisy, score_output


async def majority(env: Env, split: str, metric: str) -> MajorityScore | None:
    """Always answering as most training items want it; None if the answers do not form a small closed set."""
    train = env.items("train")
    if not closed_set(train):
        return None
    counts = Counter(item.answers[0] for item in train)
    answer = min(counts, key=lambda name: (-counts[name], name))
    values = await _values(env, split, metric, lambda item: answer)
    if not values:
        return None
    return MajorityScore(answer=answer, score=sum(values) / len(values), interval=interval(values))


async def do_nothing(env: Env, split: str, metric: str) -> ScoreWithInterval | None:
    """What a target earns that does nothing: an empty reply, or what the env says that leaves (`Env.baseline`)."""
    values = await _values(env, split, metric, env.baseline)
    return ScoreWithInterval(score=sum(values) / len(values), interval=interval(values)) if values else None


async def _values(env: Env, split: str, metric: str, output: Callable[[Item], str]) -> list[float]:
    """No item that its scorer cannot score; nothing at all where scoring is a judge's, which costs and is noisy."""
    if is_noisy(env):
        return []
    found = []
    for item in env.items(split):
        with contextlib.suppress(ScorerError):
            found.append((await score_output(env, item, output(item))).value(metric))
    return found
