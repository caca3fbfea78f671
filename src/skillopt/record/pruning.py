"""The record of `skillopt prune`: pruned/prune.json, next to the shorter skill."""

from __future__ import annotations

from typing import Literal

from skillopt.record.base import Interval, Record
from skillopt.record.results import CheckWord, ResultFile, Spent

PruneOutcome = Literal["pruned", "nothing to prune", "worse", "cannot tell"]
"""The result in a word. `worse` and `cannot tell` are verdicts on the last shorter skill that was tried; in both cases,
no skill was written."""


class PruneTrial(Record):
    """One shorter skill, checked against the best skill."""

    removed: tuple[str, ...]
    """The removed rules, by their names in the ablation."""
    tokens: int
    verdict: CheckWord
    score: float
    base: float
    """The best skill's score on the items of this trial."""
    difference: float
    difference_interval: Interval | None
    measured: int
    repeats: int


class Pruning(ResultFile):
    """pruned/prune.json: a run's best skill without the rules that are worth nothing."""

    verdict: str
    """The result in a sentence or two."""
    outcome: PruneOutcome
    benchmark: str
    target: str
    version: int
    skill_hash: str
    """Hash of the best skill."""
    pruned_hash: str
    """Hash of the shorter skill; empty if there is none."""
    tokens: int
    pruned_tokens: int
    margin: float
    metric: str
    removed: tuple[str, ...]
    put_back: tuple[str, ...]
    """Rules that are still in the shorter skill, although the ablation measured no worth for them: no check showed that
    the skill is as good without them."""
    trials: tuple[PruneTrial, ...]
    spent: Spent
    """The cost, including the ablation."""

    @property
    def exit_code(self) -> int:
        return {"worse": 1, "cannot tell": 4}.get(self.outcome, 0)
