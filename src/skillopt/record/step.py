"""Records of a step of a training: its gate, its line in history.json, and the end of an epoch."""

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
"""`strict`: the candidate must raise the score. `keep`: the candidate must not lower the score."""
ItemClass = Literal["improved", "regressed", "persistent_fail", "stable_success"]


class Evidence(Record):
    """A gate's decision and its evidence, without the scores by item."""

    decision: GateDecision
    """The decision. `indecisive`: the candidate looks better, but the evidence is too weak. `skipped`: no edit could be
    applied."""
    gate: str = "strict"
    """The name of the gate that decided."""
    rule: Rule
    metric: str
    before: float | None
    """The current skill's score before this gate (mean over the items); None if it was never measured."""
    after: float | None
    """The candidate's score (mean over the items). None if the gate decided before the score was known, or if the gate
    measured no item (`measured` is 0). If the candidate is accepted, this is `before` of the next gate."""
    at_most: float
    """The highest score that the candidate could reach; equal to `after` if `after` is known."""
    items: int
    measured: int
    paired_gain: float | None = None
    """The candidate's gain in fresh samples of both skills (mean over the items). The paired gate decides by this gain.
    None if there are no fresh samples."""
    remeasured: float | None = None
    """The current skill's score with this gate's fresh samples. If the candidate is not accepted, this is `before` of
    the next gate."""
    p: float | None = None
    """The p-value: how often a candidate that is no better would look this good by chance. None if there are no fresh
    samples."""
    repeats: int = 0
    """The number of rounds of fresh samples. In each round, both skills repeat the items on which they differ."""
    reason: str = ""
    """The reason why a candidate was rejected although it scores higher."""
    set_aside: dict[str, str] = Field(default={})
    """Items that the endpoint refused during this gate because of their content, with the reason."""

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
    """The scores of one item with the current skill and with the candidate."""

    item_id: str
    before: float
    """The current skill's score, as it was known before this gate."""
    after: float
    """The candidate's score (a mean if the item was sampled several times)."""
    hard: float
    """The candidate's hard score on the item."""
    repeats: int = 0
    """The number of fresh samples with each skill."""
    compared: tuple[float, float] | None = None
    """The two scores that the decision compares: the current skill's and the candidate's. None if these are `before`
    and `after`. The paired gate compares fresh samples; if an item has none, the gate treats the skills as equal."""

    @property
    def pair(self) -> tuple[float, float]:
        """The two scores that the decision compares: the current skill's and the candidate's."""
        return self.compared or (self.before, self.after)

    @property
    def change(self) -> float:
        before, after = self.pair
        return after - before


class GateResult(Evidence):
    """A gate's decision with the scores of each item."""

    known_scores: dict[str, float] = Field(default={})
    """The scores, by item, of the skill that training continues with."""
    evidence: tuple[ItemEvidence, ...] = ()
    telemetry: dict[str, int] = Field(default={})
    """Counts of rollouts: `rollouts` is the number that were done, `saved` the number that were not needed."""


class GateRecord(GateResult, Document):
    """gate.json: the gate of a step or of a slow update."""

    candidate_hash: str


class LearningRate(Record):
    scheduled: float
    used: float
    """The rate that the step used: the scheduled rate, lowered if some steps before this one were not accepted."""


class EditCounts(Record):
    """Counts of a step's edits at each stage."""

    proposed: int
    dropped: dict[str, int]
    """The number of unusable edits in the analysts' replies, by reason."""
    lost_replies: tuple[str, ...]
    """The reasons why requests to the optimizer got no usable reply."""
    unusable_replies: tuple[str, ...]
    """The problems of unusable replies or parts of replies. They are recorded even if another try was usable."""
    leaks: int
    """The number of edits that copy from a training item."""
    merged: int
    conflicting: int
    """The number of edits that wait for a person's decision."""
    selected: int
    applied: int
    skipped: dict[str, int]
    """The number of selected edits that could not be applied, by reason."""
    accepted: int


class Acceptance(Record):
    """The accepted edits as a share of the proposed edits. A share is None if no edit was proposed."""

    step: float | None
    """The share in this step."""
    so_far: float | None
    """The share over all steps up to this one."""


def acceptance_rate(accepted: int, proposed: int) -> float | None:
    return accepted / proposed if proposed else None


class CreditTry(Evidence):
    """The gate's result for some edits of a rejected candidate, or for the minimal remedy."""

    edits: tuple[str, ...]
    """The ids of the edits that were tried."""
    left_out: tuple[str, ...]
    """The ids of the edits that were left out, because they broke items or were not part of the minimal remedy."""


class StepTelemetry(Record):
    """Times and call counts; they are left out when two runs are compared."""

    seconds: dict[str, float]
    """Seconds by stage."""
    paid_so_far: ByRole[Paid]


class SlowUpdateOutcome(Record):
    """The outcome of a slow update."""

    equal: bool
    """True if the epoch did not change the skill, so there was nothing to compare."""
    counts: dict[str, int]
    """The number of items by class: `improved`, `regressed`, `persistent_fail` and `stable_success`."""
    lost: str
    """The reason why there is no guidance; empty if there is guidance."""
    unusable: tuple[str, ...]
    decision: GateDecision
    evidence: Evidence
    version: int
    """The skill version after the slow update."""


class MetaSkillOutcome(Record):
    lost: str
    """The reason why there are no new notes; empty if there are new notes."""
    unusable: tuple[str, ...]


class EpochEnd(Record):
    """The results of an epoch's end: epoch_end.json, and `epoch_end` in the record of the epoch's last step."""

    optional: ClassVar = frozenset({"slow_update", "meta_skill"})

    epoch: int
    slow_update: SlowUpdateOutcome | None = None
    meta_skill: MetaSkillOutcome | None = None


class StepRecord(Document):
    """The record of a step: step_record.json, and a line of history.json."""

    optional: ClassVar = frozenset({"acceptance", "epoch_end"})

    step: int
    epoch: int
    train_score: float | None
    """The mean score of the batch: the training loss of this step."""
    rollout_errors: int
    """The number of rollouts without a score."""
    failure_kinds: dict[FailureKind, int] = Field(default={})
    """The number of the batch's failed tasks by kind of failure, the most frequent kind first."""
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
    """The accepted edits as a share of the proposed edits; None in runs of earlier versions."""
    review: tuple[Decision, ...] = ()
    """A person's decisions that this step was the first to use."""
    credit: tuple[CreditTry, ...] = ()
    """The gate's results for parts of a rejected candidate and for the minimal remedy."""
    applied: tuple[Edit, ...] = ()
    """The candidate's edits."""
    pending: tuple[Edit, ...] = ()
    """Edits of this and earlier steps that broke nothing and that the next step tries again."""
    version: int
    """The skill version after the step."""
    skill_hash: str
    skill_tokens: int
    candidate_tokens: int
    telemetry: StepTelemetry
    epoch_end: EpochEnd | None = None
    """The results of the epoch's end; only in the record of the epoch's last step."""


class BatchDigest(Document):
    """trajectory_digest.json: the scores of a step's batch."""

    skill_hash: str
    items: dict[str, ItemScore]
    failed: tuple[str, ...]
    errors: dict[str, str]
    """The items whose rollout has no score, each with the reason."""
    patterns: dict[str, int]
    """The number of failed items by cause."""


class Evaluation(Document):
    """evaluations/<split>_<name>.json: the scores of a skill on a whole split."""

    skill_hash: str
    score: float
    items: dict[str, ItemScore]
    set_aside: dict[str, str]
    """Items that the endpoint refuses because of their content, with the reason."""


class ComparedItem(Record):
    """The scores of one item with the skills of two epochs."""

    item_id: str
    class_: ItemClass
    before: float
    after: float
    before_id: str
    """The id of the trajectory with the skill of the earlier epoch."""
    after_id: str


class EpochComparison(Document):
    """slow_update/epoch_NN/comparison.json: the skills of two epochs on the same items."""

    epoch: int
    before_version: int
    after_version: int
    equal: bool
    """True if the epoch did not change the skill, so there was nothing to compare."""
    counts: dict[str, int] = Field(default={})
    rows: tuple[ComparedItem, ...] = ()
    guidance: str = ""
    """The whole guidance with the reply's changes; empty if the reply changes no line."""
    edits: tuple[Edit, ...] = ()
    """The lines of the guidance that are added, revised or removed."""
    skipped: tuple[Skip, ...] = ()
    """Lines of the reply that could not be used, with the reason."""
    lost: str = ""
    """The reason why there is no guidance; empty if there is guidance."""
    unusable: tuple[str, ...] = ()
    """The problems of replies that could not be used."""


class TestSplitRead(Record):
    """One use of the test split: a line of test_reads.jsonl."""

    optional: ClassVar = frozenset({"score", "scores"})

    who: str
    """The command that read the test split."""
    when: str
    items: int
    score: float | None = None
    scores: dict[str, float | None] | None = None
    """The scores of the initial and the best skill, if a training read the test split."""
