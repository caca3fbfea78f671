"""Several skills checked one after another: which of them changed, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from skillopt.errors import MissingKey, SkillOptError, Stopped, StopReason
from skillopt.preflight.lint import Linted
from skillopt.record.results import CheckResult
from skillopt.record.source import Source

_WORST_FIRST = (1, 2, 3, 4, 0)
"""Which code a check of several skills exits with: worse comes first, then what kept others from a verdict."""


@dataclass(frozen=True, kw_only=True)
class CheckJob:
    """One skill to be checked on one target."""

    name: str
    """The skill as the user named it."""
    target: str
    skill: Source
    base: Source
    linted: Linted
    measure: Callable[[], CheckResult]
    """Runs the check; errors of the user's making, of endpoints and of budgets come out of it."""


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """What became of a job."""

    name: str
    target: str
    status: str
    """better, no worse, worse, cannot tell; unchanged, removed, not measured (no key); stopped, error."""
    code: int
    sentence: str
    skill: Source
    base: Source
    linted: Linted
    result: CheckResult | None = None
    """None if there is no verdict."""


def run_jobs(jobs: Sequence[CheckJob], *, all_of_them: bool, skip_without_key: bool) -> list[CheckOutcome]:
    """Every job to its end. What stops one does not stop the others, and never becomes a verdict.

    A skill whose text is that of its base is not run, unless `all_of_them`.
    """
    outcomes = []
    for job in jobs:
        unchanged = CheckOutcome(
            name=job.name,
            target=job.target,
            status="unchanged",
            code=0,
            sentence=_same(job),
            skill=job.skill,
            base=job.base,
            linted=job.linted,
        )
        if not job.skill.path:
            message = "Removed: it is in the base alone, and was not run."
            outcomes.append(replace(unchanged, status="removed", sentence=message))
            continue
        if not all_of_them and job.skill.skill.hash == job.base.skill.hash:
            outcomes.append(unchanged)
            continue
        try:
            result = job.measure()
        except MissingKey as error:
            message = f"Not measured, only linted: {error}."
            skipped = replace(unchanged, status="not measured", code=0, sentence=message)
            failed = replace(unchanged, status="error", code=2, sentence=str(error))
            outcomes.append(skipped if skip_without_key else failed)
        except Stopped as error:
            if error.reason is StopReason.BY_HAND:
                raise
            outcomes.append(replace(unchanged, status="stopped", code=3, sentence=str(error)))
        except SkillOptError as error:
            outcomes.append(replace(unchanged, status="error", code=2, sentence=str(error)))
        else:
            outcomes.append(
                replace(unchanged, status=result.verdict, code=result.exit_code, sentence=result.says, result=result)
            )
    return outcomes


def exit_code(outcomes: Sequence[CheckOutcome]) -> int:
    codes = {outcome.code for outcome in outcomes}
    return next((code for code in _WORST_FIRST if code in codes), 0)


def _same(job: CheckJob) -> str:
    if job.skill.files == job.base.files:
        return f"Unchanged since {job.base.where}: not run."
    return f"Only files that never belong to a package changed since {job.base.where}: not run."
