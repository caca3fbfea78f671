"""The record of a run's summary, `summary.json`, which other programs read."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from skillopt.record.base import ByRole, Document, Interval, Number, Record
from skillopt.record.calibration import JudgeStanding
from skillopt.record.costs import Bill
from skillopt.record.state import Counts, Phase

_MOST_NEEDED = 5000
"""If more tasks than this are needed, the verdict does not name the number."""


class InitialScores(Record):
    """The scores of the initial skill."""

    val: float | None = None
    val_interval: Interval | None = None
    test: float | None = None
    """The test score. None until the test split is read, and always None if `evaluation.test` is false."""
    test_interval: Interval | None = None
    tokens: int
    kind: str
    """The origin of the skill, such as `empty` or `file`."""


class BestScores(Record):
    """The scores of the best skill: the version with the highest validation score."""

    val: float | None
    """The validation score that the gate measured."""
    val_interval: Interval | None
    val_remeasured: float | None
    """The validation score from fresh samples; None if the skill was not measured again."""
    val_remeasured_interval: Interval | None
    winners_curse: float | None
    """`val` minus `val_remeasured`: the selection bias."""
    test: float | None
    test_interval: Interval | None
    step: int
    version: int
    tokens: int

    @property
    def confirmed(self) -> tuple[float | None, Interval | None]:
        """The validation score and its interval. They are from fresh samples if there are any, else from the gate."""
        if self.val_remeasured is None:
            return self.val, self.val_interval
        return self.val_remeasured, self.val_remeasured_interval


class NoSkillScores(Record):
    """The scores of the empty skill."""

    test: float | None
    test_interval: Interval | None
    tokens: int


class ConstantScores(Record):
    """The scores of doing nothing, by split."""

    optional: ClassVar = frozenset({"val", "val_interval", "test", "test_interval"})

    val: float | None = None
    val_interval: Interval | None = None
    test: float | None = None
    test_interval: Interval | None = None


class MajorityScores(ConstantScores):
    """The scores of always giving the most frequent answer of the training split."""

    answer: str


class Baselines(Record):
    optional: ClassVar = frozenset({"no_skill", "majority", "do_nothing"})

    no_skill: NoSkillScores | None = None
    majority: MajorityScores | None = None
    do_nothing: ConstantScores | None = None


class EditTotals(Record):
    proposed: int
    accepted: int


class GateTotals(Record):
    calls_saved: int
    """The number of rollouts that were not needed because gates decided early."""


class Gain(Record):
    """The scores of two skills on the same tasks. In a summary, these are the initial and the best skill."""

    before: float
    after: float
    tasks: int
    split: str = "test"
    interval: Interval | None = None
    """The 95 % interval of the gain."""

    @property
    def value(self) -> float:
        return self.after - self.before

    @property
    def word(self) -> Literal["better", "no better", "worse", "cannot tell"]:
        """The gain in a word. It is `better` or `worse` only if the interval excludes zero."""
        low, high = self.interval or (0.0, 0.0)
        if low > 0:
            return "better"
        if high < 0:
            return "worse"
        return "cannot tell" if self.value > 1e-9 else "no better"

    @property
    def tasks_needed(self) -> int | None:
        """The approximate number of tasks that would be enough to show a gain of this size. None if there is no gain,
        if the run already has enough tasks, or if the number is too high."""
        if self.interval is None or self.value <= 0:
            return None
        half = (self.interval[1] - self.interval[0]) / 2
        needed = math.ceil(self.tasks * (half / self.value) ** 2 * 1.1)
        return needed if self.tasks < needed <= _MOST_NEEDED else None


class Gains(Record):
    optional: ClassVar = frozenset({"val", "test"})

    val: Gain | None = None
    test: Gain | None = None


class PlannedSteps(Record):
    planned: int
    real: int


class Forecast(Record):
    """The plan's estimate of a figure, and the real figure."""

    low: Number | None = None
    likely: Number | None = None
    """The likely value; None for runs of earlier versions, which had only a range."""
    high: Number | None = None
    real: Number | None


class PlanFigures(Record):
    """The plan of the run next to its real figures."""

    estimate: bool = True
    steps: PlannedSteps
    schedule: str = ""
    """The schedule of the learning rate and, if `auto` chose it, the reason."""
    calls: ByRole[Forecast]
    tokens: ByRole[Forecast]
    usd: ByRole[Forecast]
    seconds: Forecast
    by_stage: ByRole[dict[str, Forecast]]
    """Calls by stage, planned and real."""


class _Heading(Record):
    """The first fields of the summary."""

    verdict: str = ""
    """The result in a sentence or two; empty until the run ends."""
    outcome: str = "not finished"
    """The result in a word: `better`, `no better`, `worse`, `cannot tell`, `not finished`, or `measured` (the test
    split was not read)."""
    status: str
    """The status of the run: `running`, `finished` or `stopped`."""
    stop_reason: str
    """The reason why the run ended before its last step. For a stopped run: `interrupted`, or the text of an error. For
    a finished run: why no further step could help. Empty if the run did all its steps."""
    benchmark: str
    seed: int
    initial: InitialScores
    best: BestScores
    baselines: Baselines


class Summary(Bill, _Heading, Document):
    """summary.json: the results and costs of a run."""

    optional: ClassVar = frozenset({"plan", "judge"})

    seconds_by_stage: dict[str, float]
    rollouts_to_best: int
    """The number of target rollouts that were paid for until the best score was reached."""
    edit_acceptance_rate: float | None
    edits: EditTotals
    persistent_failures: tuple[str, ...]
    """Items that failed under every skill that was tried."""
    set_aside: dict[str, str]
    """Items that the endpoint refuses because of their content, with the reason."""
    steps: Counts
    gate: GateTotals
    seconds: float
    gain: Gains = Gains()
    item_names: dict[str, str] = Field(default={})
    """Readable names of the persistent failures, by id."""
    plan: PlanFigures | None = None
    judge: JudgeStanding | None = None
    """The judge of the run; None if no model judges."""
    phases: tuple[Phase, ...] = ()
    """The first training and each extension."""
