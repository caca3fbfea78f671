"""Reading a run for people: a file that was altered causes many kinds of errors, and is reported as one kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skillopt.errors import Damaged, SkillOptError
from skillopt.run.directory import RunDirectory
from skillopt.skill import PatchLogError

_ALTERED = (
    PatchLogError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    StopIteration,
)
"""What code meets that takes a file's form for granted, as it may: training wrote it, and `verify` checks it."""


@contextmanager
def as_written(run: RunDirectory) -> Iterator[None]:
    """Within, the run's files are taken to be as training wrote them; where one is not, that is said."""
    try:
        yield
    except SkillOptError:
        raise
    except _ALTERED as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        way_out = f"`skillopt verify {run.root}` checks them"
        raise Damaged(f"{run.root}: a file of this run is not as it was written ({words}); {way_out}") from error
