"""Gates that users bring: one that decides in place of ours, and vetoes that reject what a gate accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skillopt import plugins
from skillopt.errors import UserError
from skillopt.gates.base import Gate, Rule, Verdict
from skillopt.skill import Applied, Skill

Veto = Callable[[Mapping[str, float], Mapping[str, float]], bool | str]
"""A function of the selection items' scores under the current skill and under the candidate, by item id.

It is asked about candidates that the gate accepts. True lets the candidate pass; False or a reason rejects it.
"""


def with_vetoes(gate: Gate, vetoes: Sequence[Veto]) -> Gate:
    """The gate, but what it accepts must pass every veto as well. Guidance that only has to keep the score is not
    asked about."""
    if not vetoes:
        return gate

    async def vetoed(*given: Any, rule: Rule = "strict", **named: Any) -> Verdict:
        verdict = await gate(*given, rule=rule, **named)
        if not verdict.accepted or rule == "keep":
            return verdict
        before = {row.item_id: row.before for row in verdict.evidence}
        for veto in vetoes:
            said = veto(before, verdict.values)
            if said is not True:
                reason = said if isinstance(said, str) and said else f"rejected by '{plugins.named(veto)}'"
                return verdict.model_copy(update={"decision": "reject", "reason": reason, "standing": {}})
        return verdict

    return vetoed


def custom_gate(part: Any) -> Gate:
    """A user's gate (a function, or a class without arguments), whose verdicts are checked before anything relies on
    them."""
    gate = plugins.instance(part)
    name = plugins.named(part)

    async def checked(
        skill: Skill, candidate: Applied, current: Mapping[str, float], *given: Any, **named: Any
    ) -> Verdict:
        said = gate(skill, candidate, current, *given, **named)
        verdict = await said if inspect.isawaitable(said) else said
        if not isinstance(verdict, Verdict):
            raise UserError(f"gate '{name}': gave {type(verdict).__name__}; a gate gives a skillopt.gates.Verdict")
        return _complete(verdict, current, name)

    return checked


def _complete(verdict: Verdict, current: Mapping[str, float], name: str) -> Verdict:
    """An accepted candidate is what the next steps are compared with, so that all of its scores must be known."""
    if not verdict.accepted:
        return verdict
    if verdict.after is None:
        raise UserError(f"gate '{name}': accepted a candidate without a score; set the verdict's `after`")
    standing = verdict.standing or verdict.values
    missing = sorted(current.keys() - standing.keys() - verdict.set_aside.keys())
    if missing:
        raise UserError(
            f"gate '{name}': accepted a candidate without the scores of {len(missing)} items ('{missing[0]}' is one); "
            "give each item's score in the verdict's `evidence` or `standing`"
        )
    return verdict.model_copy(update={"standing": standing})
