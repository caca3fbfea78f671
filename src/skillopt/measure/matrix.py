"""Makes the matrix of skills and targets from measured verdicts, and finds the cells that changed. The word of a cell
is `keep`, `prune`, `retire` or `retrain`; if there is no verdict, another word says why."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.errors import UserError
from skillopt.measure.batch import CheckOutcome
from skillopt.record.matrix import Matrix, MatrixCell
from skillopt.record.pruning import Pruning
from skillopt.record.results import CheckResult
from skillopt.record.run import read_record
from skillopt.skill import Skill


@dataclass(frozen=True, kw_only=True)
class CellChange:
    before: MatrixCell | None
    """The recorded cell; None if the cell is new."""
    after: MatrixCell

    @property
    def worse(self) -> bool:
        """True if the new word has a lower rank than the recorded word. False if the cell has no verdict."""
        old, new = self.before.rank if self.before else None, self.after.rank
        return old is not None and new is not None and new < old


def matrix_of(outcomes: Sequence[CheckOutcome], recorded: Matrix | None = None) -> Matrix:
    """The matrix from the outcomes of checks whose base is the empty skill. `recorded` is the matrix of an earlier
    `skillopt check`."""
    return Matrix(
        skills=tuple(dict.fromkeys(outcome.name for outcome in outcomes)),
        targets=tuple(dict.fromkeys(outcome.target for outcome in outcomes)),
        cells=tuple(_cell(outcome, recorded) for outcome in outcomes),
    )


def _cell(outcome: CheckOutcome, recorded: Matrix | None) -> MatrixCell:
    result, known = outcome.result, recorded and recorded.cell(outcome.name, outcome.target)
    digest = outcome.skill.skill.hash
    first = known.recorded if known and known.hash == digest else None
    word, why = _word(outcome, first)
    measured = result if result and not result.same_text else None
    return MatrixCell(
        skill=outcome.name,
        target=outcome.target,
        word=word,
        why=why,
        hash=digest,
        tokens=outcome.skill.skill.tokens,
        score=measured.scores.skill.score if measured else None,
        interval=measured.scores.skill.interval if measured else None,
        no_skill=measured.scores.base.score if measured else None,
        recorded=first if first is not None or measured is None else measured.scores.skill.score,
    )


def _word(outcome: CheckOutcome, recorded: float | None) -> tuple[str, str]:
    result = outcome.result
    if result is None:
        return outcome.status, outcome.sentence
    if result.verdict == "worse":
        return "retrain", result.says
    if recorded is not None and _fell(result, recorded):
        return (
            "retrain",
            f"Scores {result.scores.skill.score:.2f}, but {recorded:.2f} was recorded for this text. {result.says}",
        )
    if result.verdict == "no worse":
        return "retire", result.says
    if result.verdict == "better" and (pruning := _pruned(outcome)):
        return "prune", f"{result.says} {pruning.verdict}"
    return ("keep" if result.verdict == "better" else result.verdict), result.says


def _fell(result: CheckResult, recorded: float) -> bool:
    """True if the new score is lower than the recorded score by more than the margin, and the recorded score is above
    the interval of the new score."""
    now = result.scores.skill
    high = now.interval[1] if now.interval else 1.0
    return recorded - now.score > result.margin + 1e-9 and recorded > high


def _pruned(outcome: CheckOutcome) -> Pruning | None:
    """The result of pruning the outcome's skill for the outcome's target; None if no run in the output folder has such
    a result."""
    body = Skill(outcome.skill.document.body.lstrip("\n"))  # an export adds front matter to the run's skill
    same = {outcome.skill.skill.hash, body.hash}
    for path in sorted(Path(outcome.output_root).glob("*/*/pruned/prune.json")) if outcome.output_root else ():
        try:
            found = read_record(Pruning, path)
        except UserError as error:  # the file of some run in the folder is damaged
            warnings.warn(f"a run cannot be read, so its pruning is not suggested: {error}", stacklevel=2)
            continue
        if found.outcome == "pruned" and found.target == outcome.target and found.skill_hash in same:
            return found
    return None


def changes(recorded: Matrix | None, now: Matrix) -> list[CellChange]:
    """The cells that are new, and the cells whose word differs from the recorded word. A recorded cell that now has no
    verdict is left out."""
    rows = [
        CellChange(before=recorded.cell(cell.skill, cell.target) if recorded else None, after=cell)
        for cell in now.cells
    ]
    return [
        row for row in rows if row.before is None or (row.after.rank is not None and row.before.word != row.after.word)
    ]


def merged(recorded: Matrix | None, now: Matrix) -> Matrix:
    """The matrix to record. A new cell replaces the recorded cell, unless the new cell has no verdict."""
    old = recorded.cells if recorded else ()
    known = {(cell.skill, cell.target): cell for cell in old}
    for cell in now.cells:
        if cell.rank is not None or (cell.skill, cell.target) not in known:
            known[cell.skill, cell.target] = cell
    return Matrix(
        skills=_union(recorded.skills if recorded else (), now.skills),
        targets=_union(recorded.targets if recorded else (), now.targets),
        cells=tuple(known.values()),
    )


def _union(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))
