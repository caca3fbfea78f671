"""The matrix of skills and targets, one word per cell. `check --json` prints it; `check --watch FILE` records it."""

from __future__ import annotations

from skillopt.record.base import Document, Interval, Record

RANKS = {"keep": 2, "prune": 2, "retire": 1, "retrain": 0}
"""The ranks of the verdicts; a higher rank is better. A cell without a verdict has no rank; its word is, for
example, `cannot tell`."""


class MatrixCell(Record):
    """The verdict on one skill with one target."""

    skill: str
    target: str
    word: str
    """The verdict: `keep`, `prune`, `retire` or `retrain`. If there is no verdict: `cannot tell`, `not measured`,
    `stopped`, `error` or `unchanged`."""
    why: str
    """The reason for the word in a sentence, with the measured figures."""
    hash: str
    """The hash of the skill."""
    tokens: int
    score: float | None
    interval: Interval | None
    no_skill: float | None
    """The score on the same items without any skill."""
    recorded: float | None
    """The score of the first measurement of this text of the skill with this target."""

    @property
    def rank(self) -> int | None:
        return RANKS.get(self.word)


class Matrix(Document):
    """matrix.json: skills × targets."""

    skills: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[MatrixCell, ...]

    def cell(self, skill: str, target: str) -> MatrixCell | None:
        return next((cell for cell in self.cells if (cell.skill, cell.target) == (skill, target)), None)
