"""What a training gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from skillopt.record.directory import RunDirectory
from skillopt.record.history import read_history
from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.skill import Skill


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a training gives."""

    path: Path
    """The run's folder."""
    best_skill: Skill
    summary: Summary
    """As `summary.json` has it."""

    @property
    def scores(self) -> dict[str, float | None]:
        """initial_val, best_val, initial_test and best_test; a test score is None while the split is sealed."""
        initial, best = self.summary.initial, self.summary.best
        return {"initial_val": initial.val, "best_val": best.val, "initial_test": initial.test, "best_test": best.test}

    @property
    def verdict(self) -> str:
        """The result in plain words: better or not, by how much, why not, and what it cost."""
        return self.summary.verdict

    @property
    def history(self) -> list[StepRecord]:
        """One record a step, as `history.json` has it."""
        return read_history(RunDirectory(self.path).history)
