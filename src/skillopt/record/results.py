"""The records of measurements, such as eval_summary.json, comparison.json, check.json and ablations."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, Field, SerializerFunctionWrapHandler, model_serializer

from skillopt.record.base import Document, Interval, Record
from skillopt.record.costs import Paid

CheckWord = Literal["better", "no worse", "worse", "cannot tell"]
PartVerdict = Literal["earns", "harmful", "nothing", "unclear", "together"]
"""The verdict on a part of a skill. `earns`: the interval of its worth is above 0. `harmful`: the interval is below 0.
`nothing`: no item changed. `unclear`: items changed, but the interval includes 0. `together`: the part alone shows no
worth, but the score falls if all such parts are left out at once."""


class ScoreWithInterval(Record):
    score: float
    interval: Interval | None


class MajorityScore(ScoreWithInterval):
    """The score of always giving the most frequent answer."""

    answer: str


class SkillFile(Record):
    """The skill that was measured."""

    path: str
    """Path of the skill; empty for the empty skill, or for a skill that is not in a file."""
    hash: str
    tokens: int


class Spent(Record):
    """The total cost of a measurement."""

    calls: int
    tokens: int
    usd: float | None
    """The cost in dollars; None if a price is unknown."""
    estimated: bool = False
    """True if the tokens are estimated from the texts."""
    silent: bool = False
    """True if the target made calls without reporting their usage."""


class TypeScore(Record):
    score: float
    items: int


class ResultFile(Document):
    optional: ClassVar = frozenset({"path"})

    path: str | None = None
    """Path of the result's file. The path is not stored in the file itself."""


class _Verdict(ResultFile):
    """The first fields of a result."""

    verdict: str
    """The result in a sentence or two."""
    outcome: str
    """The result in a word: `better`, `no better`, `worse`, `cannot tell`, `not finished` or `measured`."""


class EvalSummary(_Verdict):
    """eval_summary.json: the scores of a skill on a split."""

    optional: ClassVar = frozenset({"test_reads", "path"})

    benchmark: str
    split: str
    skill: SkillFile
    metric: str
    score: float
    interval: Interval | None
    majority: MajorityScore | None
    do_nothing: ScoreWithInterval | None
    hard: float
    soft: float
    items: int
    scores: dict[str, float]
    failed: tuple[str, ...]
    set_aside: dict[str, str]
    by_type: dict[str, TypeScore]
    paid: Paid
    """The usage and cost of the target."""
    spent: Spent
    seconds: float
    test_reads: int | None = None
    """The number of times that the test split was read; None for the other splits."""


class ComparedSkill(ScoreWithInterval, SkillFile):
    """One side of a comparison."""

    name: str


class ItemLists(Record):
    improved: tuple[str, ...]
    regressed: tuple[str, ...]
    both_pass: tuple[str, ...]
    both_fail: tuple[str, ...]


class Comparison(_Verdict):
    """comparison.json: two skills on the same items."""

    optional: ClassVar = frozenset({"test_reads", "path"})

    benchmark: str
    split: str
    metric: str
    items: int
    difference: float
    difference_interval: Interval | None
    p: float
    differing: int
    """The number of items whose scores differ."""
    lists: ItemLists
    a: ComparedSkill
    b: ComparedSkill
    names: dict[str, str]
    """Readable names of the items, by id."""
    same_skill: bool
    repeats: int
    set_aside: dict[str, str]
    paid: Paid
    majority: MajorityScore | None
    test_reads: int | None = None


class CheckedSkill(SkillFile):
    """One of the two skills of a check."""

    where: str
    """The file, or the file and its commit."""


class CheckRollouts(Record):
    asked: int
    full_pass: int
    """The number of rollouts that are needed if both skills do every item once."""


class BothScores(Record):
    base: ScoreWithInterval
    skill: ScoreWithInterval


class TaskSeconds(Record):
    seconds: float


class SideTakes(Record):
    """The mean costs of a rollout with one of the two skills."""

    rollouts: int
    prompt_tokens: float
    completion_tokens: float
    usd: float | None
    """Dollars; None if the price is unknown."""
    turns: float
    telemetry: TaskSeconds
    refused: int
    """The number of items that the endpoint refused."""


class BothTakes(Record):
    base: SideTakes
    skill: SideTakes


class ChangedSide(Record):
    score: float
    output: str
    feedback: str


class ChangedItem(Record):
    """An item on which the two skills differ."""

    item_id: str
    type: str
    change: Literal["improved", "regressed"]
    difference: float
    samples: int
    input: str
    base: ChangedSide
    skill: ChangedSide


class CheckTelemetry(Record):
    paid: Spent
    """The cost of this session."""


class CheckResult(ResultFile):
    """check.json: whether one skill is better, no worse or worse than another skill."""

    optional: ClassVar = frozenset({"test_reads", "path"})

    verdict: CheckWord
    benchmark: str
    target: str
    split: str
    metric: str
    margin: float
    alpha: float
    noisy: bool
    skill: CheckedSkill
    base: CheckedSkill
    same_text: bool
    items: int
    measured: int
    repeats: int
    sure_by: str
    """The stage that decided: `screen`, `all items` or `repeats`."""
    rollouts: CheckRollouts
    p: float
    difference: float
    difference_interval: Interval | None
    scores: BothScores
    takes: BothTakes
    changed: tuple[ChangedItem, ...]
    set_aside: dict[str, str]
    items_needed: int | None
    says: str
    """The verdict in plain words."""
    exit_code: int
    telemetry: CheckTelemetry
    test_reads: int | None = None


class AblatedPart(Record):
    """A part of a skill, and its worth."""

    optional: ClassVar = frozenset({"names"})

    name: str
    text: str
    lines: tuple[int, int] | None
    tokens: int
    worth: float
    """The score with the part minus the score without it."""
    interval: Interval | None
    wins: int
    losses: int
    verdict: PartVerdict
    names: tuple[str, ...] | None = None
    """If several parts were left out together, their names."""


class Ablation(ResultFile):
    """ablation/<by>_v<version>.json: the worth of each part of a skill."""

    by: Literal["rule"]
    benchmark: str
    version: int
    skill_hash: str
    tokens: int
    metric: str
    items: int
    repeats: int
    deterministic: bool
    score: float | None
    rows: tuple[AblatedPart, ...]
    """The parts, the most valuable first."""
    not_measured: tuple[str, ...]
    together: tuple[AblatedPart, ...]
    set_aside: dict[str, str]
    paid: Paid


class SweepRow(Record):
    """A trial of a sweep."""

    optional: ClassVar = frozenset({"test", "test_interval", "initial_test"})

    trial: int
    values: dict[str, Any]
    """The values of this trial, by dotted config key."""
    run: str
    initial_val: float
    best_val: float
    val_interval: Interval | None
    accepted: int
    steps: int
    tokens: int
    target_calls: int
    optimizer_calls: int
    from_journal: int
    rollouts_to_best: int
    test: float | None = None
    """The test score; only the winner has one."""
    test_interval: Interval | None = None
    initial_test: float | None = None


class Sweep(ResultFile):
    """sweep.json: the trials of a sweep, and the best one."""

    optional: ClassVar = frozenset({"best", "path", "benchmark"})

    axes: dict[str, tuple[str, ...]]
    """The values to try, by dotted config key, as they are written on the command line."""
    planned: int
    rows: tuple[SweepRow, ...]
    chosen_by: str
    best: SweepRow | None = None
    """The best trial; None until all trials are done."""
    benchmark: str | None = None

    @property
    def winner(self) -> SweepRow:
        assert self.best is not None, "all trials are done"
        return self.best


class ReplicatedRun(Record):
    """The run of one seed."""

    seed: int
    run: str = ""
    initial_val: float
    best_val: float
    """The best skill's validation score. It is from fresh samples if there are any, else from the gate."""
    initial_test: float
    best_test: float
    tasks: dict[str, int] = Field(default={})
    """The number of tasks of each split."""
    interval: dict[str, Interval | None] = Field(default={})
    """The 95 % intervals by column: `initial_val`, `best_val`, `initial_test`, `best_test`, `gain_val`, `gain_test`."""
    accepted: int = 0
    target_calls: int = 0

    def value(self, column: str) -> float:
        """The value in a column. For `gain_val` and `gain_test`, it is the best score minus the initial score; for
        other columns, it is a score."""
        kind, _, split = column.partition("_")
        scores = {"val": (self.initial_val, self.best_val), "test": (self.initial_test, self.best_test)}[split]
        return {"initial": scores[0], "best": scores[1], "gain": scores[1] - scores[0]}[kind]


class Replication(_Verdict):
    """replicate.json: the results of runs that differ only in the seed."""

    seeds: tuple[int, ...]
    rows: tuple[ReplicatedRun, ...]
    mean: dict[str, float]
    """Means over the seeds, by column: `initial_val`, `best_val`, `initial_test`, `best_test`, `gain_val` and
    `gain_test`."""
    interval: dict[str, Interval | None]
    """The 95 % intervals of the means, by column."""
    improved: dict[str, float]
    """The share of seeds whose best skill scores higher than the initial skill, by split."""
    best_seed_by_validation: int


class TransferRow(Record):
    """The scores of a skill on the benchmark and target of `Transfer.to`. Scores that were not measured are left
    out."""

    optional: ClassVar = frozenset({"val", "val_interval", "test", "test_interval", "tokens"})

    skill: str
    run: str
    where: str
    """The benchmark on which the skill was measured."""
    val: float | None = None
    val_interval: Interval | None = None
    test: float | None = None
    test_interval: Interval | None = None
    tokens: int | None = None


class TransferGoal(Record):
    benchmark: str
    target: str


class TransferSource(TransferGoal):
    run: str


class Transfer(_Verdict):
    """transfer.json: the scores of a trained skill on a benchmark or target that is not the one of its training."""

    source: TransferSource = Field(validation_alias=AliasChoices("from", "source"))
    to: TransferGoal
    tuned: bool
    rows: tuple[TransferRow, ...]

    @model_serializer(mode="wrap")
    def _with_from(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The record's fields, with `source` renamed to `from`, which Python does not allow as a field's name."""
        fields: dict[str, Any] = serialize(self)
        return {"from" if name == "source" else name: fields[name] for name in fields if fields[name] is not None}
