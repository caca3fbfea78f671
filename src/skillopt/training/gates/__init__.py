"""The gates, which decide about a candidate. Each is an async function; config/sections.py has the table of names."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from skillopt import plugins
from skillopt.config import sections
from skillopt.errors import DiskError, SkillOptError, UserError
from skillopt.record.step import ItemEvidence, Rule
from skillopt.skill import Applied, Skill
from skillopt.tasks.load import load_object
from skillopt.training.gates.base import Gate, Verdict
from skillopt.training.gates.paired import paired_gate
from skillopt.training.gates.strict import strict_gate

__all__ = [
    "GATES",
    "Gate",
    "ItemEvidence",
    "Rule",
    "Verdict",
    "Veto",
    "custom_gate",
    "open_gate",
    "paired_gate",
    "strict_gate",
    "with_vetoes",
]

GATES: dict[str, Gate] = {name: load_object(reference, "evaluation.gate") for name, reference in sections.GATES.items()}


def open_gate(name: str) -> Gate:
    """The gate of this name: a built-in one, or one that an installed package registers as `skillopt.gates`."""
    if name in GATES:
        return GATES[name]
    return custom_gate(plugins.load("gates", name, key="evaluation.gate", known=GATES))


Veto = Callable[[Mapping[str, float], Mapping[str, float]], bool | str]
"""A function that gets the validation items' scores under the current skill and under the candidate, by item id. It is
called for candidates that the gate accepts. True lets the candidate pass; False or a reason rejects it.
"""


def with_vetoes(gate: Gate, vetoes: Sequence[Veto]) -> Gate:
    """The gate, but a candidate that it accepts must pass every veto as well. Vetoes are not asked about guidance that
    only has to keep the score."""
    if not vetoes:
        return gate

    async def vetoed(*args: Any, rule: Rule = "strict", **kwargs: Any) -> Verdict:
        verdict = await gate(*args, rule=rule, **kwargs)
        if not verdict.accepted or rule == "keep":
            return verdict
        before, after = ({row.item_id: row.pair[side] for row in verdict.evidence} for side in (0, 1))
        for veto in vetoes:
            if reason := _objection(veto, before, after):
                return verdict.model_copy(update={"decision": "reject", "reason": reason, "known_scores": {}})
        return verdict

    return vetoed


def _objection(veto: Veto, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Why a veto rejects; empty if it does not."""
    name = plugins.named(veto)
    with _named_errors("veto", name):
        answer: Any = veto(before, after)
    if isinstance(answer, str):
        return answer or f"rejected by '{name}'"
    if type(answer).__name__ not in {"bool", "bool_"}:  # numpy's, too
        raise UserError(f"veto '{name}': gave {answer!r}; a veto gives True, or False or a reason to reject")
    return "" if answer else f"rejected by '{name}'"


@contextlib.contextmanager
def _named_errors(kind: str, name: str) -> Iterator[None]:
    """An error of a user's function as one message that names it."""
    try:
        yield
    except (SkillOptError, *DiskError):
        raise
    except Exception as error:
        raise UserError(f"{kind} '{name}': {type(error).__name__}: {error}") from error


def custom_gate(part: Any) -> Gate:
    """A user's gate (a function, or a class without arguments), whose verdicts are checked before anything relies on
    them."""
    gate = plugins.instance(part)
    name = plugins.named(part)

    async def checked(
        skill: Skill, candidate: Applied, current: Mapping[str, float], *args: Any, **kwargs: Any
    ) -> Verdict:
        with _named_errors("gate", name):
            result = gate(skill, candidate, current, *args, **kwargs)
            verdict = await result if inspect.isawaitable(result) else result
        if not isinstance(verdict, Verdict):
            raise UserError(f"gate '{name}': gave {type(verdict).__name__}; a gate gives a skillopt.Verdict")
        return _complete(verdict, current, name)

    return checked


def _complete(verdict: Verdict, current: Mapping[str, float], name: str) -> Verdict:
    """The next steps are compared with an accepted candidate, so all of its scores must be known, unless
    the gate measures nothing."""
    if not verdict.accepted or (verdict.before is None and verdict.after is None and not verdict.measured):
        return verdict
    if verdict.after is None:
        raise UserError(f"gate '{name}': accepted a candidate without a score; set the verdict's `after`")
    known_scores = verdict.known_scores or verdict.values
    missing = sorted(current.keys() - known_scores.keys() - verdict.set_aside.keys())
    if missing:
        raise UserError(
            f"gate '{name}': accepted a candidate without the scores of {len(missing)} items ('{missing[0]}' is one); "
            "give each item's score in the verdict's `evidence` or `known_scores`"
        )
    return verdict.model_copy(update={"known_scores": known_scores})
