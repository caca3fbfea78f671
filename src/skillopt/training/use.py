"""The cost of using a skill: calls, tokens, dollars and seconds per task, from the records of the target's calls."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from skillopt.config.sections import Price
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of
from skillopt.record.base import Record
from skillopt.record.trajectory import Trajectory


class TaskUse(Record):
    """Mean costs per task. Several samples of one task are averaged as one task."""

    tasks: int
    turns: float
    """Calls of the target per task."""
    tokens: float
    """Tokens of prompts and replies per task; 0 if the target reports no usage."""
    usd: float | None
    """Dollars per task; None if there is no price and the calls report no cost."""
    seconds: float
    """Seconds of the target's calls per task, without waiting times."""

    @property
    def tokens_per_call(self) -> float:
        return self.tokens / self.turns if self.turns else 0.0

    @property
    def usd_per_call(self) -> float | None:
        return None if self.usd is None or not self.turns else self.usd / self.turns


def use_of(trajectories: Iterable[Trajectory], price: Price | None) -> TaskUse | None:
    """The mean costs per task over these trajectories; None without trajectories."""
    by_task: dict[str, list[tuple[int, int, float, float | None]]] = {}
    for each in trajectories:
        recorded = each.telemetry.get("calls", ())
        calls = [_usage(call) for call in recorded]
        costs = [cost_of(usage, price) if usage.usd is None else usage.usd for usage in calls]
        dollars = None if None in costs else sum(cost or 0.0 for cost in costs)
        tokens = sum(usage.prompt + usage.completion for usage in calls)
        seconds = sum(call.get("seconds") or 0.0 for call in recorded)
        by_task.setdefault(each.item_id, []).append((len(calls), tokens, seconds, dollars))
    if not by_task:
        return None
    usd = [[dollars for *_, dollars in samples if dollars is not None] for samples in by_task.values()]
    known = all(len(costs) == len(samples) for costs, samples in zip(usd, by_task.values(), strict=True))
    return TaskUse(
        tasks=len(by_task),
        turns=fmean(fmean(turns for turns, *_ in samples) for samples in by_task.values()),
        tokens=fmean(fmean(tokens for _, tokens, *_ in samples) for samples in by_task.values()),
        seconds=fmean(fmean(seconds for *_, seconds, _ in samples) for samples in by_task.values()),
        usd=fmean(map(fmean, usd)) if known else None,
    )


def _usage(call: dict[str, float]) -> Usage:
    prompt, completion, cached = (int(call.get(name) or 0) for name in ("prompt", "completion", "cached"))
    return Usage(prompt=prompt, completion=completion, cached=cached, usd=call.get("usd"))
