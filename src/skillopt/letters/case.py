"""The case file: everything that the optimizer may know when it is asked, as typed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillopt.envs.base import Item, Trajectory
from skillopt.run.state import Rejected, Tried
from skillopt.skill import Limits

MOST_OTHERS = 40
"""Tasks of other batches that a letter shows with their answers."""
LONGEST_OTHER = 150
"""Tokens of such a task with its answer; a longer one is not shown, since a part of it explains nothing."""


def room_for_others(prompt_tokens: int) -> int:
    """Tokens of a letter that may go to tasks of other batches."""
    return prompt_tokens // 4


@dataclass(frozen=True, kw_only=True)
class Job:
    """What does not change over a run."""

    task: str = ""
    """What the tasks are: `env.task`, else the env's own description."""
    scoring: str = ""
    """How an output becomes a score, in a sentence."""
    target: str = ""
    """The model that does the tasks."""
    reply_tokens: int = 0
    """Where the target's reply is cut off; 0 where nothing is known."""
    known_patterns: Mapping[str, str] = field(default_factory=dict)
    """The env author's names for causes of failure, and what they mean."""
    comments: Sequence[str] = ()
    """What people said of an earlier run (`gradient.feedback`), a line each."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much a step may change."""

    edits: int = 4
    limits: Limits = field(default_factory=Limits)
    """What an edit and each file may grow to."""
    examples: bool = False
    """Another analyst adds worked examples from the batch."""


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """What reflection knows besides the skill and the trajectories."""

    job: Job = Job()
    room: Room = Room()
    validation: float | None = None
    """The current skill's score on the selection split."""
    validation_tasks: int = 0
    """How many tasks that score is the mean of."""
    tried: Sequence[Tried] = ()
    """Earlier steps: their edits and what became of them."""
    rejected: Sequence[Rejected] = ()
    """Edits that gates rejected, each by itself; for analysts that must not repeat them."""
    notes: str = ""
    """The meta skill."""
    others: Sequence[Item] = ()
    """Training tasks of other batches, for their expected answers: facts that cost no rollout."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One task under two skills."""

    change: str
    """improved, regressed, persistent_fail or stable_success."""
    before: Trajectory
    after: Trajectory
