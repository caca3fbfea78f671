"""The contract of a tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from skillopt.config import TrackersConfig


@dataclass(frozen=True, kw_only=True)
class About:
    """What a tracker receives at the start of a run."""

    name: str
    """Benchmark and run, such as `sim/seed42-65fe080e`."""
    folder: Path
    """The tracker's own folder in the run."""
    config: Mapping[str, Any]
    """The flat config; no key or secret is ever in it."""
    settings: TrackersConfig
    earlier_id: str
    """What `begin` returned in an earlier session of the run; empty in the first."""


class Tracker(Protocol):
    """Called from a separate thread, in the order of the run. It may raise or hang: the run continues without it."""

    def begin(self, about: About) -> str:
        """Open this run's place, or continue in it; returns an id for later sessions."""
        ...

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        """A finished step; times in seconds since 1970."""
        ...

    def skill(self, version: int, step: int, text: str) -> None:
        """A version of the skill as text."""
        ...

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """The final figures, and the files of the report."""
        ...

    def close(self) -> None: ...


def step_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The curves of a step record, by names with a slash, as trackers group them."""
    evidence, edits = record["evidence"], record["edits"]
    accepted = record["verdict"] == "accept"
    scalars = {
        "score/train": record["train_score"],
        "score/validation": evidence["after"] if accepted else evidence["before"],
        "score/candidate_at_most": evidence["at_most"],
        "gate/accepted": float(accepted),
        "skill/tokens": record["skill_tokens"],
        "skill/version": record["version"],
        "optimizer/learning_rate": record["learning_rate"]["used"],
        **{f"edits/{stage}": edits[stage] for stage in ("proposed", "selected", "applied", "accepted")},
    }
    telemetry = record["telemetry"]
    for role, paid in telemetry.get("paid_so_far", {}).items():
        scalars[f"paid/{role}_calls"] = paid["calls"]
        scalars[f"paid/{role}_tokens"] = paid["prompt_tokens"] + paid["completion_tokens"]
        if paid["usd"] is not None:
            scalars[f"paid/{role}_usd"] = paid["usd"]
    for stage, seconds in telemetry.get("seconds", {}).items():
        scalars[f"seconds/{stage}"] = seconds
    return {name: float(value) for name, value in scalars.items()}


def final_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """What a run gave in the end; what was not measured is left out."""
    initial, best = summary["initial"], summary["best"]
    figures = {
        "final/initial_validation": initial["val"],
        "final/validation": best["val"],
        "final/initial_test": initial["test"],
        "final/test": best["test"],
        "final/skill_tokens": best["tokens"],
        "final/edit_acceptance_rate": summary["edit_acceptance_rate"],
        "final/persistent_failures": len(summary["persistent_failures"]),
        "final/seconds": summary["seconds"],
    }
    return {name: float(value) for name, value in figures.items() if value is not None}
