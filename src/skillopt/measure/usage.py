"""Stores the tokens and seconds of paid rollouts. When a rollout is repeated with replies from a journal, it takes no
time, so the stored values are used."""

from __future__ import annotations

from pathlib import Path

from skillopt.record.base import Record
from skillopt.record.files import append_jsonl, read_jsonl
from skillopt.tasks.base import Trajectory


class RolloutUsage(Record):
    """The tokens, seconds and dollars of one rollout, summed over its calls."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    written: int = 0
    seconds: float = 0.0
    """Seconds without the waits for an endpoint that rejects calls."""
    usd: float | None = None
    """The cost in dollars that the agent itself reports."""


class UsageLog:
    """A file with the tokens and seconds that each rollout took when it was paid for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logged = {row.pop("key"): RolloutUsage.model_validate(row) for row in read_jsonl(path)}

    def of(self, key: str, trajectory: Trajectory) -> RolloutUsage:
        """The usage of a rollout at the time when it was paid for."""
        if key not in self._logged:
            self._logged[key] = _sum(trajectory)
            append_jsonl(self._path, [{"key": key, **self._logged[key].model_dump()}])
        return self._logged[key]


def _sum(trajectory: Trajectory) -> RolloutUsage:
    calls = trajectory.telemetry.get("calls", [])
    costs = [call["usd"] for call in calls if call.get("usd") is not None]
    return RolloutUsage(
        prompt=sum(call["prompt"] for call in calls),
        completion=sum(call["completion"] for call in calls),
        cached=sum(call["cached"] for call in calls),
        written=round(sum(call.get("written", 0) for call in calls)),
        seconds=round(sum(call["seconds"] for call in calls), 4),
        usd=sum(costs) if costs else None,
    )
