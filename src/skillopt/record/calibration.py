"""The record of `skillopt judge calibrate`: a judge's agreement with people, its biases, its noise."""

from __future__ import annotations

from typing import ClassVar, Literal

from skillopt.record.base import Document, Interval, Record


class LengthBias(Record):
    """The judge's excess (its grade minus the person's) by the length of the answer."""

    correlation: float | None
    """Spearman, of the length and of the judge's grade minus the person's; None if one of them never varies."""
    difference: float
    """The excess on the longer half of the answers minus that on the shorter half."""
    interval: Interval | None
    """95 %, of the difference."""

    @property
    def shown(self) -> bool:
        """Is it more than chance?"""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


class PositionBias(Record):
    """Pairs on which the two orders disagree."""

    pairs: int
    """All pairs that were judged."""
    first: int
    """Pairs on which the first position won in both orders."""
    second: int
    """Pairs on which the second position won in both orders."""
    p: float
    """The two-sided p of so uneven a division."""

    @property
    def shown(self) -> bool:
        return self.p < 0.05


class Disagreement(Record):
    """One of the answers on which the grades of the judge and the person differ most."""

    id: str
    person: float
    judge: float
    reason: str
    """What the judge said."""


class JudgeCalibration(Document):
    """judge_calibration.json. Grades are from 0 to 1."""

    optional: ClassVar = frozenset({"position"})

    model: str
    setup: str
    """Fingerprint of the judge: the model, its prompt and its options. The calibration holds for this judge alone."""
    form: Literal["grade", "pairwise"]
    graded: str
    """Fingerprint of the file of human grades."""
    items: int
    agreement: float
    """The share of answers on which both say pass, or both say fail."""
    kappa: float | None
    """Cohen's kappa on pass or fail; None if one of the two gives every answer the same."""
    spearman: float | None
    """Spearman's rank correlation of the two grades; None if one of them never varies."""
    excess: float
    """The mean of the judge's grade minus the person's."""
    length: LengthBias
    position: PositionBias | None = None
    repeats: int
    """Judgements of each answer."""
    flip_rate: float
    """How often two judgements of one answer differ in pass or fail."""
    deviation: float
    """The standard deviation of the grades of one answer, over all answers."""
    disagreements: tuple[Disagreement, ...] = ()
    verdict: str = ""

    @property
    def biases(self) -> tuple[str, ...]:
        """Biases that are more than chance, in words."""
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
    """The model that proposed the edits also judged them."""
    calibration: Literal["none", "of another judge", "done"]
    kappa: float | None = None
    flip_rate: float | None = None
    biases: tuple[str, ...] = ()
