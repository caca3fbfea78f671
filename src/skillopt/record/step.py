"""A step of a training: its gate, its line in history.json, and the end of an epoch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from skillopt.record.base import ByRole, Document, Record
from skillopt.record.costs import Paid
from skillopt.record.edits import Decision
from skillopt.record.trajectory import FailureKind, ItemScore
from skillopt.skill import Edit, Skip

GateDecision = Literal["accept", "reject", "indecisive", "skipped"]
Rule = Literal["strict", "keep"]
"""strict: the candidate must raise the score; keep: it must not lower it."""
ItemClass = Literal["improved", "regressed", "persistent_fail", "stable_success"]


class Evidence(Record):
    """A gate's decision and its evidence, without the item list."""

    decision: GateDecision
    """indecisive: better, but the evidence is too weak; skipped: no edit could be applied."""
    gate: str = "strict"
    """The name of the gate that decided."""
    rule: Rule
    metric: str
    before: float | None
    """The current skill's score as it was known before this gate, the mean over the items; None if it was never
    measured."""
    after: float | None
    """The candidate's score, the mean over the items; None if the gate stopped before the score was known, or measured
    nothing (`measured` is 0). If the candidate is accepted, this is `before` of the next gate."""
    at_most: float
    """The highest score that the candidate can still reach; equal to `after` if that is known."""
    items: int
    measured: int
    paired_gain: float | None = None
    """The candidate's gain by fresh samples of both skills alone, the mean over the items; it decides the paired gate.
    None if the gate took no such samples."""
    remeasured: float | None = None
    """The current skill's score with the fresh samples of this gate, if it stays: `before` of the next gate."""
    p: float | None = None
    """The p-value: how likely a candidate that is not better looks this good; None if nothing was repeated."""
    repeats: int = 0
    """Rounds of fresh samples of both skills on the items on which they differ."""
    reason: str = ""
    """Why a candidate that scores higher was rejected."""
    set_aside: dict[str, str] = Field(default={})
    """Items that the endpoint refused because of their content during this gate."""

    @property
    def accepted(self) -> bool:
        return self.decision == "accept"

    @property
    def gain(self) -> float:
        """The candidate's gain: the paired gain if there is one, else `after` minus `before`."""
        if self.paired_gain is not None:
            return self.paired_gain
        return 0.0 if self.before is None or self.after is None else self.after - self.before


class ItemEvidence(Record):
    """One item under both skills."""

    item_id: str
    before: float
    """The mean of the current skill's scores that were known before this gate."""
    after: float
    """The mean of the candidate's scores."""
    hard: float
    """Whether the candidate solved it, by the hard score."""
    repeats: int = 0
    """Fresh samples of each skill."""
    compared: tuple[float, float] | None = None
    """The two scores that the decision compares, the current skill's first, if these are not `before` and `after`: the
    paired gate compares fresh samples, and counts an item without any as equal."""

    @property
    def pair(self) -> tuple[float, float]:
        """The two scores that the decision compares, the current skill's first."""
        return self.compared or (self.before, self.after)

    @property
    def change(self) -> float:
        before, after = self.pair
        return after - before


class GateResult(Evidence):
    """A gate's decision with the scores of each item."""

    known_scores: dict[str, float] = Field(default={})
    """Scores by item of the skill that training continues with."""
    evidence: tuple[ItemEvidence, ...] = ()
    telemetry: dict[str, int] = Field(default={})
    """`saved`: calls that the gate did not need."""


class GateRecord(GateResult, Document):
    """gate.json, of a step or of a slow update."""

    candidate_hash: str


class LearningRate(Record):
    scheduled: float
    used: float
    """The learning rate after the decay of rejected steps."""


class EditCounts(Record):
    """How many of a step's edits reached each stage."""

    proposed: int
    dropped: dict[str, int]
    """Unusable edits of the analysts' replies, counted by reason."""
    lost_replies: tuple[str, ...]
    """Why replies of the optimizer could not be used."""
    unusable_replies: tuple[str, ...]
    """What was wrong with replies or parts of them, also if asking again helped."""
    leaks: int
    """Edits that copy from a training item."""
    merged: int
    conflicting: int
    """Edits that wait for a person."""
    selected: int
    applied: int
    skipped: dict[str, int]
    """Selected edits that could not be applied, by reason."""
    accepted: int


class Acceptance(Record):
    """Accepted edits as a share of the proposed ones; None if none was proposed."""

    step: float | None
    """The share in this step."""
    so_far: float | None
    """The same share over all steps up to this one."""


def acceptance_rate(accepted: int, proposed: int) -> float | None:
    return accepted / proposed if proposed else None


class CreditTry(Evidence):
    """A part of a rejected candidate at the gate, or the minimal remedy."""

    edits: tuple[str, ...]
    """The edits that were tried."""
    left_out: tuple[str, ...]
    """The edits that broke items; of a minimal remedy, all others."""


class StepTelemetry(Record):
    """Times and call counts, which comparisons of two runs leave out."""

    seconds: dict[str, float]
    """Seconds by stage."""
    paid_so_far: ByRole[Paid]


class SlowUpdateOutcome(Record):
    """The outcome of a slow update's guidance."""

    equal: bool
    """The epoch changed nothing, so there was nothing to compare."""
    counts: dict[str, int]
    """Items by class: improved, regressed, persistent_fail, stable_success."""
    lost: str
    """Why there is no guidance; empty if there is."""
    unusable: tuple[str, ...]
    decision: GateDecision
    evidence: Evidence
    version: int
    """The skill version after it."""


class MetaSkillOutcome(Record):
    lost: str
    """Why there are no new notes; empty if there are some."""
    unusable: tuple[str, ...]


class EpochEnd(Record):
    """epoch_end.json, and `epoch_end` of the epoch's last step."""

    optional: ClassVar = frozenset({"slow_update", "meta_skill"})

    epoch: int
    slow_update: SlowUpdateOutcome | None = None
    meta_skill: MetaSkillOutcome | None = None


class StepRecord(Document):
    """step_record.json, and a line of history.json."""

    optional: ClassVar = frozenset({"acceptance", "epoch_end"})

    step: int
    epoch: int
    train_score: float | None
    """The mean score of the batch: the training loss of this step."""
    rollout_errors: int
    """Rollouts without a score."""
    failure_kinds: dict[FailureKind, int] = Field(default={})
    """Kinds of failure among the batch's failed tasks, the most frequent first."""
    val: float | None
    """The validation score of the skill after the step."""
    val_before: float | None
    val_after: float | None
    """The validation score of the candidate."""
    verdict: GateDecision
    evidence: Evidence
    learning_rate: LearningRate
    edits: EditCounts
    acceptance: Acceptance | None = None
    """None in runs of earlier versions."""
    review: tuple[Decision, ...] = ()
    """A person's decisions that no earlier step has used."""
    credit: tuple[CreditTry, ...] = ()
    """Parts of a rejected candidate that were tried, and the minimal remedy."""
    applied: tuple[Edit, ...] = ()
    """The candidate's edits."""
    pending: tuple[Edit, ...] = ()
    """Edits that broke nothing and wait for the next step, this step's among them."""
    version: int
    """The skill version after the step."""
    skill_hash: str
    skill_tokens: int
    candidate_tokens: int
    telemetry: StepTelemetry
    epoch_end: EpochEnd | None = None
    """The end of the epoch, if this is its last step."""


class BatchDigest(Document):
    """trajectory_digest.json: a step's batch."""

    skill_hash: str
    items: dict[str, ItemScore]
    failed: tuple[str, ...]
    errors: dict[str, str]
    """Why rollouts have no score, by item."""
    patterns: dict[str, int]
    """Failed items by cause."""


class Evaluation(Document):
    """evaluations/<split>_<name>.json: a skill on a whole split."""

    skill_hash: str
    score: float
    items: dict[str, ItemScore]
    set_aside: dict[str, str]
    """Items that the endpoint refuses because of their content."""


class ComparedItem(Record):
    """One item under the skills of two epochs."""

    item_id: str
    class_: ItemClass
    before: float
    after: float
    before_id: str
    """The trajectory's id."""
    after_id: str


class EpochComparison(Document):
    """slow_update/epoch_NN/comparison.json: two epochs' skills on the same items."""

    epoch: int
    before_version: int
    after_version: int
    equal: bool
    """The epoch changed nothing, so there was nothing to compare."""
    counts: dict[str, int] = Field(default={})
    rows: tuple[ComparedItem, ...] = ()
    guidance: str = ""
    """All lines of the guidance as the reply leaves them; empty if it changes none."""
    edits: tuple[Edit, ...] = ()
    """The lines that are added, revised or removed."""
    skipped: tuple[Skip, ...] = ()
    """Lines of the reply that could not be used, and why."""
    lost: str = ""
    """Why there is no guidance; empty if there is."""
    unusable: tuple[str, ...] = ()
    """What was wrong with replies that could not be used."""


class TestSplitRead(Record):
    """A line of test_reads.jsonl."""

    optional: ClassVar = frozenset({"score", "scores"})

    who: str
    """The command that read the test split."""
    when: str
    items: int
    score: float | None = None
    scores: dict[str, float | None] | None = None
    """For a training: the scores of the initial and the best skill."""
