"""Causes of failure, counted in one way: which failures have which cause."""

from __future__ import annotations

import re
from collections.abc import Sequence

from skillopt.record.edits import Patch
from skillopt.tasks.base import Trajectory
from skillopt.training.edits.similarity import normal_name

_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\d+")


def causes(patches: Sequence[Patch], trajectories: Sequence[Trajectory]) -> dict[str, set[str]]:
    """The ids of the failures by cause. A failure for which no analyst names a cause has its scorer's."""
    failures = {t.id: t for t in trajectories if t.score.hard < 1}
    failures_by_cause: dict[str, set[str]] = {}
    for patch in patches:
        for pattern in patch.patterns:
            shown = failures.keys() & set(pattern.trajectory_ids)
            if shown and (name := normal_name(pattern.name)):
                failures_by_cause.setdefault(name, set()).update(shown)
    named = set().union(*failures_by_cause.values()) if failures_by_cause else set()
    for trajectory in failures.values():
        if trajectory.id not in named and (cause := feedback_cause(trajectory)):
            failures_by_cause.setdefault(cause, set()).add(trajectory.id)
    return dict(sorted(failures_by_cause.items()))


def feedback_cause(trajectory: Trajectory) -> str:
    """The scorer's feedback as a short name: the first line without quotations and numbers; empty if it says little."""
    first = next(iter(trajectory.score.feedback.strip().splitlines()), "")
    words = normal_name(_QUOTED.sub(" ", first)).split()
    return " ".join(words[:10]) if len(words) >= 3 else ""
