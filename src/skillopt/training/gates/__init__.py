"""The gates, which accept or reject candidates. Each gate is an async function; config/sections.py lists their
names."""

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
"""A function that may reject a candidate that the gate accepts. It gets the validation items' scores by item id: first
the scores under the current skill, then those under the candidate. It returns True to let the candidate pass, or
rejects the candidate with False or a text (the reason)."""


def with_vetoes(gate: Gate, vetoes: Sequence[Veto]) -> Gate:
    """A gate whose accepted candidates must also pass every veto. With the rule `keep` (for guidance), no veto is
    called, because the guidance only has to keep the score."""
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
    """The reason why a veto rejects a candidate; empty if the veto lets it pass."""
    name = plugins.named(veto)
    with _named_errors("veto", name):
        answer: Any = veto(before, after)
    if isinstance(answer, str):
        return answer or f"rejected by '{name}'"
    if type(answer).__name__ not in {"bool", "bool_"}:  # bool_ is numpy's
        raise UserError(
            f"veto '{name}': returned {answer!r}; return True to accept the candidate; return False or a text (the "
            "reason) to reject it"
        )
    return "" if answer else f"rejected by '{name}'"


@contextlib.contextmanager
def _named_errors(kind: str, name: str) -> Iterator[None]:
    """Turn an error of a user's function into a message that names the function."""
    try:
        yield
    except (SkillOptError, *DiskError):
        raise
    except Exception as error:
        raise UserError(f"{kind} '{name}': {type(error).__name__}: {error}") from error


def custom_gate(part: Any) -> Gate:
    """Wrap a user's gate (a function, or a class that needs no arguments), so that its verdicts are checked before they
    are used."""
    gate = plugins.instance(part)
    name = plugins.named(part)

    async def checked(
        skill: Skill, candidate: Applied, current: Mapping[str, float], *args: Any, **kwargs: Any
    ) -> Verdict:
        with _named_errors("gate", name):
            result = gate(skill, candidate, current, *args, **kwargs)
            verdict = await result if inspect.isawaitable(result) else result
        if not isinstance(verdict, Verdict):
            raise UserError(f"gate '{name}': returned {type(verdict).__name__}; a gate must return a skillopt.Verdict")
        return _complete(verdict, current, name)

    return checked


def _complete(verdict: Verdict, current: Mapping[str, float], name: str) -> Verdict:
    """Check a verdict. If it accepts the candidate, return it with the candidate's scores on all items, because the
    next gate compares with these scores. A gate that measures nothing needs no scores."""
    if not verdict.accepted or (verdict.before is None and verdict.after is None and not verdict.measured):
        return verdict
    if verdict.after is None:
        raise UserError(f"gate '{name}': accepted a candidate without a score; set the verdict's `after`")
    known_scores = verdict.known_scores or verdict.values
    missing = sorted(current.keys() - known_scores.keys() - verdict.set_aside.keys())
    if missing:
        raise UserError(
            f"gate '{name}': accepted a candidate without the scores of {len(missing)} items (such as '{missing[0]}'); "
            "give each item's score in the verdict's `evidence` or `known_scores`"
        )
    return verdict.model_copy(update={"known_scores": known_scores})
