"""The protocol that every tracker implements."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skillopt.config import TrackersConfig
from skillopt.record.run import Settings
from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary


@dataclass(frozen=True, kw_only=True)
class About:
    """Facts about a run that a tracker gets at its start."""

    name: str
    """Benchmark and run, such as `sim/2026-11-17_22-40-05_seed42-65fe080e`."""
    folder: Path
    """The tracker's own folder in the run."""
    config: Settings
    """The flat config; no key or secret is ever in it."""
    settings: TrackersConfig

    @property
    def id(self) -> str:
        """An id that is the same in every session of the run. With it, a resumed run continues its record in the
        tracker."""
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]


class Tracker(Protocol):
    """Gets the events of a run in their order. The run waits until each call has returned; if a call raises, the run
    continues without the tracker."""

    def begin(self, about: About) -> None:
        """Open this run in the tracker, or continue it."""
        ...

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        """Record a finished step; `began` and `ended` are seconds since 1970."""
        ...

    def skill(self, version: int, step: int, text: str) -> None:
        """Record the text of a version of the skill."""
        ...

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """Record the final figures, and the files of the report."""
        ...

    def close(self) -> None: ...


def step_scalars(record: StepRecord) -> dict[str, float]:
    """The measured values of a step by name. Trackers group their curves by the part of the name before the slash."""
    evidence, edits = record.evidence, record.edits
    scalars: dict[str, float | None] = {
        "score/train": record.train_score,
        "score/validation": record.val,
        "score/candidate_at_most": evidence.at_most if evidence.before is not None else None,
        "gate/accepted": float(evidence.accepted),
        "skill/tokens": record.skill_tokens,
        "skill/version": record.version,
        "optimizer/learning_rate": record.learning_rate.used,
        **{f"edits/{stage}": edits[stage] for stage in ("proposed", "selected", "applied", "accepted")},
        **{f"seconds/{stage}": seconds for stage, seconds in record.telemetry.seconds.items()},
    }
    for role in record.telemetry.paid_so_far.roles:
        paid = record.telemetry.paid_so_far.of(role)
        scalars |= {f"paid/{role}_calls": paid.calls, f"paid/{role}_tokens": paid.tokens.total}
        scalars[f"paid/{role}_usd"] = paid.usd
    return _measured(scalars)


def final_figures(summary: Summary) -> dict[str, float]:
    """The final figures of a run. Figures that were not measured are left out."""
    return _measured(
        {
            "final/initial_validation": summary.initial.val,
            "final/validation": summary.best.val,
            "final/initial_test": summary.initial.test,
            "final/test": summary.best.test,
            "final/skill_tokens": summary.best.tokens,
            "final/edit_acceptance_rate": summary.edit_acceptance_rate,
            "final/persistent_failures": len(summary.persistent_failures),
            "final/seconds": summary.seconds,
        }
    )


def _measured(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in figures.items() if value is not None}
