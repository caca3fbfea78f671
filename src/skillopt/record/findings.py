"""Findings about the tasks and the target, as the state, patches.json and the meta skill's findings.json hold them."""

from __future__ import annotations

from typing import Literal

from skillopt.record.base import Record

FindingKind = Literal["rule", "form", "hypothesis"]
"""A rule of the task, a form that the target follows or does not follow, or an open hypothesis."""


class ReportedFinding(Record):
    """A reply's row about a new or an earlier finding."""

    number: int = 0
    """The number of the earlier finding; 0 for a new one."""
    kind: FindingKind = "hypothesis"
    text: str = ""
    supports: tuple[str, ...] = ()
    """Trajectories that show it."""
    contradicts: tuple[str, ...] = ()
    """Trajectories that speak against it."""


class TaskFinding(Record):
    """One finding over all steps."""

    number: int
    kind: FindingKind
    text: str
    step: int
    """The step that reported it first."""
    supports: tuple[str, ...] = ()
    """Training tasks that show it."""
    contradicts: tuple[str, ...] = ()
    """Training tasks that speak against it."""
    tested: int = 0
    """The last later step whose batch spoke for or against it; 0 if none did."""

    @property
    def refuted(self) -> bool:
        return len(self.contradicts) > len(self.supports)

    @property
    def status(self) -> str:
        """In words, for requests."""
        tasks = "task" if len(self.supports) == 1 else "tasks"
        counts = f"{len(self.supports)} {tasks} for it, {len(self.contradicts)} against it"
        if self.refuted:
            return f"refuted at step {self.tested or self.step}: {counts}"
        when = f", tested at step {self.tested}" if self.tested else f", all of step {self.step}"
        return f"{counts}{when}" if self.supports or self.contradicts else "untested"
