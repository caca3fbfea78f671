"""Typed values for the facts from which requests to the optimizer are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from skillopt.record.findings import TaskFinding
from skillopt.record.state import Rejected, ShortForm, Tried
from skillopt.skill import Edit, SizeLimits
from skillopt.tasks.base import Item, Trajectory
from skillopt.tasks.failure_kinds import choices_of, expected

MOST_OTHERS = 40
"""The maximum number of tasks of other batches that a request shows with their answers."""
LONGEST_OTHER = 150
"""The maximum number of tokens of a task of another batch with its answer. Longer tasks are left out, not cut."""


def tokens_for_others(prompt_tokens: int) -> int:
    """The maximum number of tokens that a request spends on tasks of other batches."""
    return prompt_tokens // 4


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """Facts about the tasks that do not change during a run."""

    task: str = ""
    """A sentence that describes the tasks: `env.task`, else the env's own description."""
    scoring: str = ""
    """How an output becomes a score, in a sentence."""
    metric: str = ""
    """The score that is used for validation: `hard`, `soft` or `mixed`."""
    training_tasks: int = 0
    """The number of tasks in the training split; 0 if unknown."""
    target: str = ""
    """The model that does the tasks."""
    reply_tokens: int = 0
    """The length at which the target's reply is cut off; 0 if unknown."""
    known_patterns: Mapping[str, str] = field(default_factory=dict)
    """The causes of failure that the author of the env has named. The value is the meaning of the cause."""
    comments: Sequence[str] = ()
    """People's comments on an earlier run (`gradient.feedback`), one line each."""


@dataclass(frozen=True, kw_only=True)
class EditLimits:
    """The limits of a step's edits."""

    edits: int = 4
    sizes: SizeLimits = field(default_factory=SizeLimits)
    """The largest size of an edit and of each file."""
    examples: bool = False
    """True if the exemplar analyst, which uses no LLM, adds worked examples from the batch."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The outcome of a training task in an earlier step."""

    step: int
    output: str
    solved: bool


@dataclass(frozen=True, kw_only=True)
class OptimizerContext:
    """The facts for a request besides the skill and the trajectories."""

    task_info: TaskInfo = TaskInfo()
    edit_limits: EditLimits = EditLimits()
    step: int = 0
    steps: int = 0
    """The number of steps of the run. In a request at the end of an epoch, or if the number is unknown, `step` and
    `steps` are 0."""
    validation: float | None = None
    """The current skill's score on the validation split; None if it was not measured."""
    initial: float | None = None
    """The initial skill's validation score; None while it is being measured."""
    validation_tasks: int = 0
    """The number of validation tasks whose mean score is `validation`; 0 while the initial skill is still being
    measured."""
    tried: Sequence[Tried] = ()
    """Earlier steps, with their edits and results."""
    rejected: Sequence[Rejected] = ()
    """Edits that gates rejected, and pending edits. Analysts must not propose them again."""
    pending: Sequence[Edit] = ()
    """The edits of rejected candidates that broke nothing; these edits are tried again together with new edits."""
    proposed: Sequence[Edit] = ()
    """The edits that this step has proposed so far, for a deep reflection."""
    notes: str = ""
    """The optimizer's notes from earlier epochs (the meta skill)."""
    first_step: bool = False
    short_form: ShortForm | None = None
    """The newest minimal remedy that was tried, with its scores."""
    choices: tuple[str, ...] | None = None
    """The answers among which the agent chooses, found in the whole training split. Empty if the agent does not choose
    among answers. If this is None, the answers of the batch are used."""
    others: Sequence[Item] = ()
    """Training tasks of other batches. Requests show the expected answers of these tasks; that costs no rollout."""
    earlier: Mapping[str, Sequence[Earlier]] = field(default_factory=dict)
    """For each task of this batch, its newest solved and its newest failed outcome in earlier steps."""
    findings: Sequence[TaskFinding] = ()
    never_solved: Mapping[str, int] = field(default_factory=dict)
    """Training tasks that no earlier step solved, by id. The value is the number of steps that tried the task."""
    guidance_gate: Literal["", "keep", "strict"] = ""
    """The gate's rule for guidance; empty if that is unknown."""

    def choices_in(self, batch: Sequence[Trajectory]) -> tuple[str, ...]:
        """The answers among which the agent chooses."""
        return choices_of(expected(batch)) if self.choices is None else self.choices


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One task done with two skills."""

    change: str
    """The class of the change: `improved`, `regressed`, `persistent_fail` or `stable_success`."""
    before: Trajectory
    after: Trajectory
