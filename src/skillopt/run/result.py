"""What a training gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.skill import Skill

_SKILLS = ("initial", "best")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a training gives."""

    path: Path
    """The run's folder."""
    best_skill: Skill
    summary: dict[str, Any]
    """As `summary.json` has it."""

    @property
    def scores(self) -> dict[str, float | None]:
        """initial_val, best_val, initial_test and best_test; a test score is None while the split is sealed."""
        return {f"{skill}_{split}": self.summary[skill][split] for split in ("val", "test") for skill in _SKILLS}

    @property
    def verdict(self) -> str:
        """The result in plain words: better or not, by how much, why not, and what it cost."""
        return str(self.summary["verdict"])

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record a step, as `history.json` has it."""
        rows: list[dict[str, Any]] = read_json(RunDirectory(self.path).history)
        return rows
