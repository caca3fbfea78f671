"""Several skills checked one after another: which of them changed, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skillopt.errors import MissingKey, SkillOptError, Stopped
from skillopt.preflight.lint import Linted
from skillopt.run.source import Source

_WORST_FIRST = (1, 2, 3, 4, 0)
"""Which code a check of several skills exits with: worse comes first, then what kept others from a verdict."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One skill to be checked on one target."""

    name: str
    """The skill as the user named it."""
    target: str
    skill: Source
    base: Source
    linted: Linted
    measure: Callable[[], dict[str, Any]]
    """Runs the check; errors of the user's making, of endpoints and of budgets come out of it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a job."""

    name: str
    target: str
    status: str
    """better, no worse, worse, cannot tell; unchanged, removed, not measured (no key); stopped, error."""
    code: int
    says: str
    skill: Source
    base: Source
    linted: Linted
    result: dict[str, Any] | None = None
    """As `check.json` has it, where there is a verdict."""


def run_jobs(jobs: Sequence[Job], *, all_of_them: bool, skip_without_key: bool) -> list[Outcome]:
    """Every job to its end. What stops one does not stop the others, and never becomes a verdict.

    A skill whose text is that of its base is not run, unless `all_of_them`.
    """
    outcomes = []
    for job in jobs:
        known = Outcome(
            name=job.name,
            target=job.target,
            status="unchanged",
            code=0,
            says=_same(job),
            skill=job.skill,
            base=job.base,
            linted=job.linted,
        )
        if not job.skill.path:
            says = "Removed: it is in the base alone, and was not run."
            outcomes.append(replace(known, status="removed", says=says))
            continue
        if not all_of_them and job.skill.skill.hash == job.base.skill.hash:
            outcomes.append(known)
            continue
        try:
            result = job.measure()
        except MissingKey as error:
            says = f"Not measured, only linted: {error}."
            ended = ("not measured", 0, says) if skip_without_key else ("error", 2, str(error))
            outcomes.append(replace(known, status=ended[0], code=ended[1], says=ended[2]))
        except Stopped as error:
            if str(error) == "interrupted":
                raise
            outcomes.append(replace(known, status="stopped", code=3, says=str(error)))
        except SkillOptError as error:
            outcomes.append(replace(known, status="error", code=2, says=str(error)))
        else:
            outcomes.append(
                replace(known, status=result["verdict"], code=result["exit_code"], says=result["says"], result=result)
            )
    return outcomes


def exit_code(outcomes: Sequence[Outcome]) -> int:
    codes = {outcome.code for outcome in outcomes}
    return next((code for code in _WORST_FIRST if code in codes), 0)


def _same(job: Job) -> str:
    if job.skill.files == job.base.files:
        return f"Unchanged since {job.base.where}: not run."
    return f"Only files that never belong to a package changed since {job.base.where}: not run."
