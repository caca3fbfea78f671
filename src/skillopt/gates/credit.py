"""Credit: a candidate of several edits that was rejected may hold a good half. Its halves are gated on their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillopt.core.context import Context
from skillopt.edits.update import update
from skillopt.gates.base import Gate, Verdict
from skillopt.skill import Applied, Edit, Skill


@dataclass(frozen=True, kw_only=True)
class Credited:
    """The candidate that the step goes on with, its verdict, and what was tried on the way."""

    candidate: Applied
    verdict: Verdict
    tries: list[dict[str, object]] = field(default_factory=list)


async def credit(
    skill: Skill, candidate: Applied, verdict: Verdict, current: Mapping[str, float], ctx: Context, gate: Gate
) -> Credited:
    """Gate the halves of a rejected candidate, the better ranked first, then their halves, up to the config's limit.

    The first part that is accepted is the step's candidate; without one the whole candidate stays rejected. Each
    gate is one of `evaluation.credit_gates`, so that a step's cost has a bound.
    """
    waiting = halves(candidate.applied) if verdict.decision == "reject" else []
    tries: list[dict[str, object]] = []
    while waiting and len(tries) < ctx.config.evaluation.credit_gates:
        edits = waiting.pop(0)
        part = update(skill, edits, ctx)
        if not part.applied:
            continue
        tag = f"gate-{ctx.step:04d}-credit-{len(tries) + 1:02d}"
        tried = await gate(skill, part, current, ctx, tag=tag)
        tries.append({"edits": [edit.id for edit in part.applied], **tried.brief()})
        ctx.emit("credit_tried", edits=len(part.applied), **tried.brief())
        if tried.accepted:
            return Credited(candidate=part, verdict=tried, tries=tries)
        waiting += halves(part.applied)
    return Credited(candidate=candidate, verdict=verdict, tries=tries)


def halves(edits: Sequence[Edit]) -> list[Sequence[Edit]]:
    """Two parts, neither empty; nothing of a single edit."""
    middle = (len(edits) + 1) // 2
    return [edits[:middle], edits[middle:]] if len(edits) > 1 else []
