"""What a run has measured, for callers that have its folder only; `Run` has the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from skillopt.record.directory import RunDirectory
from skillopt.record.run import Measurement, Run
from skillopt.record.step import ItemScore

__all__ = ["Measurement", "measurements", "value", "versions_by_hash"]


def measurements(run: RunDirectory) -> Iterator[Measurement]:
    return Run(run).measurements()


def value(score: Mapping[str, object], metric: str) -> float:
    """A stored score in the run's metric."""
    return ItemScore.model_validate(score).value(metric)


def versions_by_hash(run: RunDirectory) -> dict[str, int]:
    return Run(run).versions_by_hash
