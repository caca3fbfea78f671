"""Select: take the edits that add most, one after the other, as many as the learning rate allows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.base import Patch
from skillopt.core.context import Context
from skillopt.core.schedule import edits_for
from skillopt.edits.aggregate import Pool, Pooled, same_edit
from skillopt.edits.similarity import normal_name
from skillopt.edits.update import update
from skillopt.run.state import Rejected
from skillopt.skill import Edit, Skill

REVIEW = "review/"
"""How the source of an edit begins that a person chose; it goes before all others."""
AGAIN = 0.5
"""What a failure counts for another edit that covers it: it may have several causes."""
SAME_CAUSE = 0.25
"""What an edit counts whose cause a chosen edit answers already."""


class Relevance(BaseModel):
    """Why an edit has its place."""

    model_config = ConfigDict(frozen=True)

    new_failures: int
    """Failures it covers that no edit before it covers."""
    support: int
    """Failures it covers in all."""
    new_cause: bool
    """No edit before it answers the same cause."""
    rejected: float
    """How often gates have rejected it; a rejection together with n others counts as 1/n."""

    def value(self, gain: float) -> float:
        return gain * (1.0 if self.new_cause else SAME_CAUSE) * math.pow(0.5, self.rejected)


class Ranked(BaseModel):
    """An edit's place, and why it is in or out."""

    model_config = ConfigDict(frozen=True)

    edit: Edit
    support: int
    relevance: float
    parts: Relevance | None = None
    selected: bool
    reason: str
    leak: str = ""
    """What it copies from a training item; empty if nothing."""


def select(
    pool: Pool,
    rate: float,
    skill: Skill,
    ctx: Context,
    *,
    patches: Sequence[Patch] = (),
    rejected: Sequence[Rejected] = (),
    order: Sequence[str] = (),
    turned_down: Mapping[str, str] | None = None,
) -> list[Ranked]:
    """All edits in the order in which they were taken; as many as the learning rate allows are selected.

    The next edit is always the one that adds most to those before it. `order`, where the optimizer was asked for one,
    goes before that. A person's choice goes before both, and what a person decided against (`turned_down`, by conflict)
    is out. An edit that touches the same text as a chosen one is out, and leaves its place to the next.
    """
    most = edits_for(rate)
    leaks = {leak.edit_id: leak.copied for patch in patches for leak in patch.leaks}
    places = {edit_id: place for place, edit_id in enumerate(order)}
    left = list(pool.edits)
    taken: list[Pooled] = []
    covered: Counter[str] = Counter()
    out: list[Ranked] = []
    while left:
        known = {p.edit.id: relevance(p, taken, covered, rejected) for p in left}

        def place(p: Pooled, known: Mapping[str, tuple[Relevance, float]] = known) -> tuple[bool, int, float, str]:
            chosen = p.edit.source.startswith(REVIEW)
            return (not chosen, places.get(p.edit.id, len(places)), -known[p.edit.id][1], p.edit.id)

        best = min(left, key=place)
        left.remove(best)
        parts, value = known[best.edit.id]
        barred = _barred(best, taken, most, turned_down or {}, skill, ctx)
        if not barred:
            taken.append(best)
            covered.update(best.edit.trajectory_ids)
        out.append(
            Ranked(
                edit=best.edit,
                support=best.support,
                relevance=round(value, 6),
                parts=parts,
                selected=not barred,
                reason=f"rank {len(out) + 1}, {barred or _why(parts, most)}",
                leak=next((leaks[name] for name in best.merged if name in leaks), ""),
            )
        )
    leaking = sum(bool(row.leak) for row in out if row.selected)
    ctx.emit("selected", edits=len(taken), rate=rate, conflicts=len(pool.conflicts), leaks=leaking)
    return out


def relevance(
    pooled: Pooled, taken: Sequence[Pooled], covered: Mapping[str, int], rejected: Sequence[Rejected] = ()
) -> tuple[Relevance, float]:
    """What an edit adds to those that are taken: its parts, and their value."""
    cause = normal_name(pooled.edit.pattern)
    parts = Relevance(
        new_failures=sum(covered.get(tid, 0) == 0 for tid in pooled.edit.trajectory_ids),
        support=pooled.support,
        new_cause=not (cause and any(normal_name(p.edit.pattern) == cause for p in taken)),
        rejected=round(sum(1 / entry.group for entry in rejected if same_edit(entry.edit, pooled.edit)), 6),
    )
    gain = sum(AGAIN ** covered.get(tid, 0) for tid in sorted(pooled.edit.trajectory_ids))
    return parts, parts.value(gain)


def _barred(
    pooled: Pooled, taken: Sequence[Pooled], most: int, turned_down: Mapping[str, str], skill: Skill, ctx: Context
) -> str:
    """Why an edit is left out; empty where it is taken."""
    edit = pooled.edit
    if edit.id in turned_down:
        return f"left out: decided against in review, conflict {turned_down[edit.id]}"
    if len(taken) >= most:
        return f"clipped at {most}"
    skips = update(skill, [*(p.edit for p in taken), edit], ctx).skipped
    mine = next((skip for skip in skips if skip.edit_id == edit.id), None)
    return f"left out: {mine.reason}" if mine else ""


def _why(parts: Relevance, most: int) -> str:
    repeated = "" if parts.new_cause else "; an edit before it has the same cause"
    tried = "; rejected before" if parts.rejected else ""
    covers = f"covers {parts.new_failures} failures that no edit before it covers, {parts.support} in all"
    return f"within the rate of {most}: {covers}{repeated}{tried}"
