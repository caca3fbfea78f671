"""The record of `skillopt judge calibrate`: the judge's agreement with people, its biases and its noise."""

from __future__ import annotations

from typing import ClassVar, Literal

from skillopt.record.base import Document, Interval, Record


class LengthBias(Record):
    """How the judge's excess (its grade minus the person's) depends on the length of the answer."""

    correlation: float | None
    """Spearman's rank correlation of the answer's length and the judge's excess; None if either is constant."""
    difference: float
    """The judge's excess on the longer half of the answers minus its excess on the shorter half."""
    interval: Interval | None
    """The 95 % interval of the difference."""

    @property
    def shown(self) -> bool:
        """True if chance does not explain the bias: the interval excludes zero."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


class PositionBias(Record):
    """Counts of pairs of answers whose winner depends on the order in which the judge reads them."""

    pairs: int
    """The number of pairs that were judged."""
    first: int
    """The number of pairs for which the judge preferred the answer in the first position in both orders."""
    second: int
    """The number of pairs for which the judge preferred the answer in the second position in both orders."""
    p: float
    """The two-sided p-value of the difference between `first` and `second`."""

    @property
    def shown(self) -> bool:
        return self.p < 0.05


class Disagreement(Record):
    """One of the answers on which the grades of the judge and the person differ most."""

    id: str
    person: float
    judge: float
    reason: str


class JudgeCalibration(Document):
    """judge_calibration.json. Grades are from 0 to 1."""

    optional: ClassVar = frozenset({"position"})

    model: str
    setup: str
    """Fingerprint of the judge: the model, its prompt and its options. The calibration applies only to this judge."""
    form: Literal["grade", "pairwise"]
    graded: str
    """Fingerprint of the file of human grades."""
    items: int
    agreement: float
    """The share of answers on which the judge and the person both say pass, or both say fail."""
    kappa: float | None
    """Cohen's kappa on pass or fail; None if both say pass for all answers, or both say fail for all."""
    spearman: float | None
    """Spearman's rank correlation of the judge's and the person's grades; None if either is constant."""
    excess: float
    """The mean difference: the judge's grade minus the person's grade."""
    length: LengthBias
    position: PositionBias | None = None
    repeats: int
    """The number of judgements of each answer."""
    flip_rate: float
    """The share of pairs of judgements that disagree on pass or fail. A pair is two judgements of the same answer."""
    deviation: float
    """The standard deviation of repeated grades of one answer: the square root of the answers' mean variance."""
    disagreements: tuple[Disagreement, ...] = ()
    verdict: str = ""

    @property
    def biases(self) -> tuple[str, ...]:
        """The biases that chance does not explain, in words."""
        found = []
        if self.length.shown:
            found.append(f"gives {'long' if self.length.difference > 0 else 'short'} answers more than people do")
        if self.position and self.position.shown:
            found.append(f"prefers the {'first' if self.position.first > self.position.second else 'second'} position")
        return tuple(found)


class JudgeStanding(Record):
    """The judge of a run, and its calibration."""

    model: str
    is_optimizer: bool
    """True if the model that proposed the edits also judged the answers."""
    calibration: Literal["none", "of another judge", "done"]
    kappa: float | None = None
    flip_rate: float | None = None
    biases: tuple[str, ...] = ()
