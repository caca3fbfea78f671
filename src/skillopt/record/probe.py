"""The record of a headroom probe: is there anything to learn on these tasks, for this target?"""

from __future__ import annotations

from typing import Literal

from skillopt.record.base import Record
from skillopt.record.costs import Paid
from skillopt.record.forecast import Estimate
from skillopt.record.results import MajorityScore, ResultFile

Headroom = Literal["nothing to learn", "form only", "train", "this target cannot"]


class Replies(Record):
    """Replies of one kind, with shares of them from 0 to 1."""

    count: int
    right: float
    cut_off: float
    """Replies that were cut off at the target's token limit."""
    unparsable: float
    """Wrong, not cut off, and not of the form of an answer: empty, far too long, or not one of the possible answers."""

    @property
    def unusable(self) -> float:
        return self.cut_off + self.unparsable


class ProbePlan(Record):
    """The expected cost of a probe. All but the calls are estimates; a task with several turns counts as one call."""

    calls: int
    tokens: Estimate
    usd: Estimate | None
    """None if the price is unknown."""


class Probe(ResultFile):
    """probe.json."""

    benchmark: str
    target: str
    headroom: Headroom
    sentence: str
    """The finding, with its reason."""
    items: tuple[str, ...]
    """Training tasks; no task of another split is asked."""
    samples: int
    """Samples of each task with the initial skill."""
    temperature: float | None
    """Temperature of the samples after the first; also of the first if the config sets it."""
    pass_1: float
    """Mean share of tasks that one sample solves, at the config's own temperature."""
    pass_any: float
    """Share of tasks that at least one of the samples solves."""
    solved: dict[str, int]
    """Samples that solved it, by task."""
    plain: Replies
    """Replies with the initial skill."""
    with_form: Replies | None
    """Replies with the answer's form shown below the skill, one per task; None if the tasks have no answers."""
    form: str
    """The form that was shown."""
    majority: MajorityScore | None
    """Always giving the most frequent answer, on the training split; None if answers are not a small closed set."""
    set_aside: dict[str, str]
    """Tasks that the endpoint refuses or the scorer cannot score, and why."""
    plan: ProbePlan
    paid: Paid
