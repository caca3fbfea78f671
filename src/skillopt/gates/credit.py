"""Credit: a rejected candidate may hold good edits. The items that it broke show which ones to leave out.

Each edit in turn is left out, and the rest does the broken items once more. An edit without which they pass again is to
blame; what is left without those edits goes through the whole gate like any candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillopt.core.context import Context
from skillopt.core.retry import roll_out_all
from skillopt.edits.update import update
from skillopt.envs.base import Item, Trajectory
from skillopt.gates.base import Gate, ItemEvidence, Verdict
from skillopt.gates.race import shared_words
from skillopt.skill import Applied, Edit, Skill

MOST_BROKEN = 6
"""Broken items that are tried again, those that fell most first."""
MOST_SUSPECTS = 6
"""Edits that are left out in turn, those that share most words with the broken items first."""


@dataclass(frozen=True, kw_only=True)
class Credited:
    """The candidate that the step continues with, its verdict, and what was tried on the way."""

    candidate: Applied
    verdict: Verdict
    rejected: Verdict
    """The verdict on the whole candidate, whatever became of its parts."""
    left_out: tuple[Edit, ...] = ()
    """Edits that were found to break items."""
    tries: list[dict[str, object]] = field(default_factory=list)


async def credit(
    skill: Skill, candidate: Applied, verdict: Verdict, current: Mapping[str, float], ctx: Context, gate: Gate
) -> Credited:
    """Gate what is left of a rejected candidate without the edits that broke something, while some edit is to blame and
    the config's `evaluation.credit_gates` allow it.

    The first part that is accepted is the step's candidate; without one the whole candidate stays rejected.
    """
    part, tried = candidate, verdict
    known = {} if verdict.accepted else dict(verdict.standing)
    left_out: list[Edit] = []
    tries: list[dict[str, object]] = []
    while tried.decision in {"reject", "indecisive"} and len(tries) < ctx.config.evaluation.credit_gates:
        tag = f"gate-{ctx.step:04d}-credit-{len(tries) + 1:02d}"
        blamed = await to_blame(skill, part, tried, ctx, tag)
        rest = [edit for edit in part.applied if edit not in blamed]
        if not blamed or not rest:
            break
        left_out += blamed
        part = update(skill, rest, ctx)
        tried = await gate(skill, part, {**current, **known}, ctx, tag=tag)
        known |= {} if tried.accepted else tried.standing
        out = [edit.id for edit in blamed]
        tries.append({"edits": [edit.id for edit in part.applied], "left_out": out, **tried.brief()})
        ctx.emit("credit_tried", edits=len(part.applied), **tried.brief())
    if tries and tried.accepted:
        return Credited(candidate=part, verdict=tried, rejected=verdict, left_out=tuple(left_out), tries=tries)
    whole = verdict if verdict.accepted else verdict.model_copy(update={"standing": known})
    return Credited(candidate=candidate, verdict=whole, rejected=verdict, left_out=tuple(left_out), tries=tries)


async def to_blame(skill: Skill, candidate: Applied, verdict: Verdict, ctx: Context, tag: str) -> list[Edit]:
    """The edits without which broken items pass again; none where the candidate helped too little for the rest of it to
    pass a gate, or where a single edit is all there is."""
    broken = broken_rows(verdict)
    worth_it = len(helped_rows(verdict)) >= (2 if ctx.noisy else 1)  # a single item may have been luck
    if not broken or not worth_it or len(candidate.applied) < 2:
        return []
    items = {item.id: item for item in ctx.env.items("val")}
    asked = [items[row.item_id] for row in broken]
    suspects = suspected(candidate.applied, asked, list(items.values()))
    healed = [await _healed(skill, candidate, edit, broken, asked, ctx, f"{tag}-{edit.id}") for edit in suspects]
    blamed: list[Edit] = []
    left = {row.item_id for row in broken}
    while left:
        place = max(range(len(suspects)), key=lambda n: (len(healed[n] & left), -n))
        if 2 * len(healed[place] & left) < len(left):
            break
        blamed.append(suspects[place])
        left -= healed[place]
    return blamed


async def _healed(
    skill: Skill,
    candidate: Applied,
    edit: Edit,
    broken: Sequence[ItemEvidence],
    asked: Sequence[Item],
    ctx: Context,
    tag: str,
) -> set[str]:
    """The broken items that pass again without the edit."""
    rest = update(skill, [other for other in candidate.applied if other is not edit], ctx).skill
    metric = ctx.config.evaluation.metric
    results = await roll_out_all(rest, asked, ctx, tag=tag, stage="gate")
    return {
        row.item_id
        for row, result in zip(broken, results, strict=True)
        if isinstance(result, Trajectory) and result.score.value(metric) >= (row.before + row.after) / 2
    }


def broken_rows(verdict: Verdict) -> list[ItemEvidence]:
    """The items that fell clearly, the deepest fall first."""
    rows = [row for row in verdict.evidence if row.before - row.after >= _clear(verdict)]
    return sorted(rows, key=lambda row: (row.after - row.before, row.item_id))[:MOST_BROKEN]


def helped_rows(verdict: Verdict) -> list[ItemEvidence]:
    return [row for row in verdict.evidence if row.after - row.before >= _clear(verdict)]


def _clear(verdict: Verdict) -> float:
    """How much an item's score must change before it counts as broken or helped."""
    return 0.5 if verdict.metric == "hard" else 0.2


def suspected(edits: Sequence[Edit], broken: Sequence[Item], every: Sequence[Item]) -> list[Edit]:
    """Those that share most words with the broken items first; then those that take text away."""
    touched = shared_words({item.id: item for item in every})
    ids = [item.id for item in broken]
    relation = {edit.id: sum(touched([edit])[i] for i in ids) for edit in edits}
    return sorted(edits, key=lambda edit: (-relation[edit.id], edit.op == "add", edit.id))[:MOST_SUSPECTS]
