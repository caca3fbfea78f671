"""Gate: a candidate is accepted only if it strictly improves on the selection split.

The items that most likely settle it come first: those that the current skill fails. As soon as the candidate can no
longer win, whatever the rest would give, the gate stops: the decision is that of the full evaluation, and the calls are
saved. What decides is the shortest deciding prefix of that fixed order, so that timing cannot change what is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from skillopt.core.context import Context
from skillopt.core.rollout import require_few
from skillopt.gates.base import ItemEvidence, Rule, Verdict, fallen_type, nothing
from skillopt.gates.race import Race, run_race, settling_order
from skillopt.skill import Applied, Skill


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
        return nothing(current, ctx)
    split = ctx.env.items("val")
    items = {item.id: item for item in split if item.id in current}
    race = Race(settling_order(items, current, candidate.applied), current, rule)
    with ctx.timed("gate"):
        results = await run_race(candidate.skill, items, race, ctx, tag or f"gate-{ctx.step:04d}")
    prefix = race.deciding_prefix()
    refused = {i: race.refused[i] for i in prefix if i in race.refused}
    require_few(refused, len(items), set_aside=len(split) - len(items))
    counted = race.counted(prefix)
    kept = [item_id for item_id in prefix if item_id in counted]
    best_case = race.best_case(prefix) / len(counted)
    evidence = tuple(
        ItemEvidence(item_id=i, before=current[i], after=race.known[i], hard=results[i].score.hard) for i in kept
    )
    reason = "" if race.beaten(prefix) else fallen_type(evidence, items, ctx.config.evaluation.regression_margin)
    accepted = not race.beaten(prefix) and not reason
    return Verdict(
        decision="accept" if accepted else "reject",
        rule=rule,
        metric=ctx.config.evaluation.metric,
        before=math.fsum(current[i] for i in counted) / len(counted),
        after=best_case if len(prefix) == len(race.order) else None,
        at_most=best_case,
        items=len(counted),
        measured=len(kept),
        reason=reason,
        set_aside=refused,
        standing={row.item_id: row.after for row in evidence} if accepted else {},
        evidence=evidence,
        trajectories=tuple(results[i] for i in kept),
        telemetry={"rollouts": len(results), "saved": len(race.order) - len(results)},
    )
