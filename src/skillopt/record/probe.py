"""The record of `skillopt probe`, which finds out whether training on these tasks can help this target."""

from __future__ import annotations

from typing import Literal

from skillopt.record.base import Record
from skillopt.record.costs import Paid
from skillopt.record.forecast import Estimate
from skillopt.record.results import MajorityScore, ResultFile

Headroom = Literal["nothing to learn", "form only", "train", "this target cannot"]


class Replies(Record):
    """A group of replies: their number, and the share (0 to 1) of each kind of reply."""

    count: int
    right: float
    cut_off: float
    """The share of replies that were cut off at the target's token limit."""
    unparsable: float
    """The share of replies that are wrong and do not look like an answer: they are empty, far too long, or not one of
    the possible answers."""

    @property
    def unusable(self) -> float:
        return self.cut_off + self.unparsable


class ProbePlan(Record):
    """The expected cost of a probe. Tokens and dollars are estimates. `calls` is an estimate only for tasks with
    several turns."""

    calls: int
    tokens: Estimate
    usd: Estimate | None
    """The dollars; None if the price is unknown."""


class Probe(ResultFile):
    """probe.json: the result of a probe."""

    benchmark: str
    target: str
    headroom: Headroom
    sentence: str
    """The finding, with its reason."""
    items: tuple[str, ...]
    """The ids of the training tasks that were tried."""
    samples: int
    """The number of samples of each task with the initial skill."""
    temperature: float | None
    """The temperature of all samples after the first. It is the config's temperature, unless that is 0 or not set."""
    pass_1: float
    """The share of tasks that one attempt solves, averaged over the attempts at the config's own temperature."""
    pass_any: float
    """The share of tasks that at least one of the samples solves."""
    solved: dict[str, int]
    """The number of samples that solved the task, by the task's id."""
    plain: Replies
    """Replies with the initial skill."""
    with_form: Replies | None
    """Replies, one per task, to requests that show the form of an answer below the skill; None if the tasks have no
    answers."""
    form: str
    """The form of an answer that was shown."""
    majority: MajorityScore | None
    """The score of always giving the most frequent training answer; None if answers are not from a small set."""
    set_aside: dict[str, str]
    """Tasks that the endpoint refuses or the scorer cannot score, and why."""
    plan: ProbePlan
    paid: Paid
