"""What every score is held against: the empty skill, and always giving the most frequent answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from skillopt.envs.base import Env, closed_set
from skillopt.loop.statistics import interval


def majority(env: Env, split: str, metric: str) -> dict[str, Any] | None:
    """Always answering as most training items want it; None where the answers do not form a small closed set."""
    train = env.items("train")
    if not closed_set(train):
        return None
    counts = Counter(item.answers[0] for item in train)
    answer = min(counts, key=lambda name: (-counts[name], name))
    values = [env.score(item, answer).value(metric) for item in env.items(split)]
    return {"answer": answer, "score": sum(values) / len(values), "interval": interval(values)}
