"""Gate: a candidate is accepted only if it strictly improves on the selection split.

The items that most likely settle it come first: those that the current skill fails. As soon as the candidate can no
longer win, whatever the rest would give, the gate stops: the decision is that of the full evaluation, and the calls are
saved. What decides is the shortest deciding prefix of that fixed order, so that timing cannot change what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

from skillopt.record.step import Rule
from skillopt.skill import Applied, Skill
from skillopt.training.context import Context
from skillopt.training.gates.base import Verdict, skipped_verdict
from skillopt.training.gates.early_stop import EarlyStop, early_verdict, run_until_decided


async def strict_gate(
    skill: Skill,
    candidate: Applied,
    current: Mapping[str, float],
    ctx: Context,
    *,
    tag: str = "",
    rule: Rule = "strict",
) -> Verdict:
    """Decide between the candidate and the current skill, whose score on each selection item is `current`."""
    if not candidate.applied:
        return skipped_verdict(current, ctx, gate="strict", rule=rule)
    with ctx.timed("gate"):
        tag = tag or f"gate-{ctx.step:04d}"
        progress, items = await run_until_decided(EarlyStop, candidate, current, rule, ctx, tag)
    return early_verdict(progress, items, ctx, "strict")
