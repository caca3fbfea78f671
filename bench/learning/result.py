"""The result of a finished cell: one JSON file, small enough to be committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skillopt.record.files import write_atomic
from skillopt.version import __version__

from .cells import Cell

Outcomes = dict[str, float]
"""The hard score of each item."""


@dataclass(frozen=True, kw_only=True)
class CellResult:
    cell: Cell
    test: dict[str, Outcomes] = field(default_factory=dict)
    """The test scores under the skills `initial` and `best`; for a baseline, under `no_skill` and `initial`."""
    val_initial: float | None = None
    val_best: float | None = None
    val: list[float | None] = field(default_factory=list)
    """The validation score of each proposal; None if it was rejected before the whole split was measured."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Points of the learning curve: the rollouts paid so far, and the best validation score so far."""
    rollouts: int = 0
    """The number of tasks that the target did in training, without the test items."""
    requests: int = 0
    """The number of requests to the optimizer."""
    tokens: dict[str, int | None] = field(default_factory=dict)
    """The tokens of prompts and replies by role, including the test items; None if they were not counted."""
    minutes: float = 0.0
    skill: str = ""
    items: dict[str, int] = field(default_factory=dict)
    error: str = ""
    """The reason why the cell failed; then all other figures are empty."""
    version: str = __version__

    @classmethod
    def read(cls, path: Path) -> CellResult:
        value = json.loads(path.read_text(encoding="utf-8"))
        curve = [(int(paid), float(score)) for paid, score in value.pop("curve")]
        return cls(**{**value, "cell": Cell(**value["cell"]), "curve": curve})

    def write(self, path: Path) -> None:
        rows = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in asdict(self).items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "{\n" + ",\n".join(rows) + "\n}\n")

    def score(self, which: str = "best") -> float | None:
        return mean(self.test[which]) if self.test.get(which) else None

    def differences(self, other: CellResult) -> list[str]:
        """Return the names of the figures that differ between two runs of a cell. Minutes and version do not count."""
        kept = ("test", "val_initial", "val_best", "val", "requests", "rollouts", "skill")
        own, its = asdict(self), asdict(other)
        return [name for name in kept if own[name] != its[name]]


def mean(outcomes: Mapping[str, float]) -> float:
    return sum(outcomes.values()) / len(outcomes)


def tokens_of(paid: Mapping[str, Mapping[str, Any]], role: str) -> int:
    return int(paid[role]["prompt_tokens"] + paid[role]["completion_tokens"])
