"""Checks the parameters of a user's scorer and converts its results, in the same way in every process.

Imports only the standard library, so a worker process starts quickly.
"""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

LONGEST_FEEDBACK = 10_000
NOT_DESCRIBED = "A function scores the reply; its rule is not described: infer it from scores and feedback."
LONGEST_DESCRIPTION = 1500
"""The maximum number of characters of a scorer's docstring that the optimizer sees."""
_FORMS = (
    "a score is a number from 0 to 1, a bool, (number, feedback), a dict with 'hard', 'soft' or 'score', or a Score"
)


class ScoreFields(TypedDict):
    hard: float
    soft: float
    feedback: str


def as_score(value: Any, pass_at: float = 1.0) -> ScoreFields:
    """Convert the result of a scorer, a judge or a check to `hard`, `soft` and `feedback`. A score of at least
    `pass_at` solves the task.

    `_FORMS` lists the accepted forms; any other form raises ValueError. A number may have a type of another library.
    """
    result, feedback = value if isinstance(value, tuple | list) and len(value) == 2 else (value, "")
    if hasattr(result, "hard") and hasattr(result, "soft"):
        result = {"hard": result.hard, "soft": result.soft, "feedback": getattr(result, "feedback", "")}
    fields = result if isinstance(result, Mapping) else {"score": result}
    hard = _number(fields, ("hard", "score", "reward", "soft"), value)
    soft = _number(fields, ("soft", "score", "reward", "hard"), value)
    text = str(fields.get("feedback") or feedback or "")
    return {"hard": float(hard >= pass_at), "soft": soft, "feedback": text[:LONGEST_FEEDBACK]}


def _number(fields: Mapping[str, Any], names: tuple[str, ...], value: Any) -> float:
    """The number in the first existing field of `names`; raises ValueError if the number is not from 0 to 1."""
    first: Any = next((fields[name] for name in names if name in fields), None)
    try:
        number = float(first) if hasattr(first, "__float__") else math.nan  # texts and None have no __float__
    except (TypeError, ValueError, OverflowError):  # such as an array
        number = math.nan
    if not 0 <= number <= 1:
        raise ValueError(f"it returned {reprlib.repr(value)}; {_FORMS}")
    return number


def described(scorer: Callable[..., Any]) -> str:
    """A scorer's docstring, which describes it to the optimizer."""
    return (inspect.getdoc(scorer) or "").strip()[:LONGEST_DESCRIPTION] or NOT_DESCRIBED


def takes_workspace(scorer: Callable[..., Any]) -> bool:
    """Does the scorer have a parameter named `workspace`? Raises TypeError if it cannot take an item and an output."""
    try:
        signature = inspect.signature(scorer)
    except ValueError:  # some functions written in C have no signature
        return False
    wanted = "workspace" in signature.parameters
    try:
        signature.bind(None, "", **({"workspace": None} if wanted else {}))
    except TypeError as error:
        raise TypeError(
            f"{error}; a scorer is called with the item and the output. A scorer with a parameter 'workspace' also "
            "gets the task's folder. Every other parameter needs a default"
        ) from None
    return wanted
