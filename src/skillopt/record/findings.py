"""Findings about the tasks and the target. They are stored in the state, in patches.json and in findings.json."""

from __future__ import annotations

from typing import Literal

from skillopt.record.base import Record

FindingKind = Literal["rule", "form", "hypothesis"]
"""The kind of finding. `rule`: a rule of the tasks. `form`: the target follows, or does not follow, instructions of a
certain form. `hypothesis`: a guess."""


class ReportedFinding(Record):
    """What a reply says about one finding: a new finding, or a finding that the state already has."""

    number: int = 0
    """The number of the finding in the state; 0 for a new finding."""
    kind: FindingKind = "hypothesis"
    text: str = ""
    supports: tuple[str, ...] = ()
    """The ids of the trajectories that support the finding."""
    contradicts: tuple[str, ...] = ()
    """The ids of the trajectories that contradict the finding."""


class TaskFinding(Record):
    """One finding, with the evidence from all steps."""

    number: int
    kind: FindingKind
    text: str
    step: int
    """The step that first reported the finding."""
    supports: tuple[str, ...] = ()
    """Training tasks that support the finding."""
    contradicts: tuple[str, ...] = ()
    """Training tasks that contradict the finding."""
    tested: int = 0
    """The last step after `step` whose batch supported or contradicted the finding; 0 if there is no such step."""

    @property
    def refuted(self) -> bool:
        return len(self.contradicts) > len(self.supports)

    @property
    def status(self) -> str:
        """The evidence for and against the finding in words, for requests to the optimizer."""
        tasks = "task" if len(self.supports) == 1 else "tasks"
        counts = f"{len(self.supports)} {tasks} for it, {len(self.contradicts)} against it"
        if self.refuted:
            return f"doubtful since step {self.tested or self.step}: {counts}"
        when = f", tested at step {self.tested}" if self.tested else f", all of step {self.step}"
        return f"{counts}{when}" if self.supports or self.contradicts else "no task for or against it yet"
