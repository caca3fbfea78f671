"""Checks several skills one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from skillopt.errors import MissingKey, SkillOptError, Stopped
from skillopt.preflight.lint import Linted
from skillopt.record.results import CheckResult
from skillopt.record.source import Source

_WORST_FIRST = (1, 2, 3, 4, 0)
"""The exit codes of single checks by priority: first 1 (`worse`), then 2, 3 and 4 (there is no verdict), then 0. The
exit code of several checks together is the code that comes first in this order."""
Measure = Callable[[], CheckResult]
"""A function that runs one check. It may raise UserError, errors of endpoints, and Stopped."""


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The outcome of checking one skill with one target."""

    name: str
    """The skill as the user named it."""
    target: str
    skill: Source
    base: Source
    linted: Linted
    output_root: str = ""
    """The config's `env.output_root`; empty if the skill is not measured."""
    status: str = ""
    """The outcome in a word. With a verdict: `better`, `no worse`, `worse`, `cannot tell`. Without a measurement:
    `unchanged`, `removed`, `not measured`. After a problem: `stopped`, `error`."""
    code: int = 0
    sentence: str = ""
    result: CheckResult | None = None
    """The result of the check; None if there is no verdict."""


def run_job(job: CheckOutcome, measure: Measure, *, always: bool, skip_without_key: bool) -> CheckOutcome:
    """Check one skill. If an error stops the check, the outcome has the status `error` or `stopped`, so that the other
    checks can continue. If the user stops the check, Stopped is raised.

    A skill with the same text as its base is checked only if `always` is true.
    """
    if not job.skill.path:
        return replace(job, status="removed", sentence="Removed: the skill is only in the base, so it was not checked.")
    if not always and job.skill.skill.hash == job.base.skill.hash:
        same = job.skill.files == job.base.files
        what = "Unchanged" if same else "Only files that never belong to a package changed"
        return replace(job, status="unchanged", sentence=f"{what} since {job.base.where}: not checked.")
    try:
        result = measure()
    except Stopped as error:
        if error.by_hand:
            raise
        return replace(job, status="stopped", code=3, sentence=str(error))
    except SkillOptError as error:
        if isinstance(error, MissingKey) and skip_without_key:
            return replace(job, status="not measured", sentence=f"Not measured, only linted: {error}.")
        return replace(job, status="error", code=2, sentence=str(error))
    return replace(job, status=result.verdict, code=result.exit_code, sentence=result.says, result=result)


def exit_code(outcomes: Sequence[CheckOutcome]) -> int:
    codes = {outcome.code for outcome in outcomes}
    return next((code for code in _WORST_FIRST if code in codes), 0)
