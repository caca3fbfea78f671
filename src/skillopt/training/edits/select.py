"""Select: take the edits that add most, one after the other, as many as the learning rate allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from skillopt.record.edits import EditPool, Patch, Pooled, Ranked, Relevance
from skillopt.record.events import Selected
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import SkillBuilder
from skillopt.training.context import Context
from skillopt.training.edits.similarity import normal_name
from skillopt.training.edits.update import limits_of
from skillopt.training.schedule import edits_for

REVIEW = "review/"
"""Source prefix of edits chosen by a person; they are selected first."""
AGAIN = 0.5
"""The weight of a failure that a chosen edit covers already: it may have several causes."""
SAME_CAUSE = 0.25
"""The weight of an edit whose cause a chosen edit answers already."""


def select(
    pool: EditPool,
    rate: float,
    skill: Skill,
    ctx: Context,
    *,
    patches: Sequence[Patch] = (),
    turned_down: Mapping[str, str] | None = None,
) -> list[Ranked]:
    """All edits in the order in which they were taken; as many as the learning rate allows are selected.

    The next edit is always the one that adds most to those before it. A person's choice goes first, and an edit
    that a person decided against (`turned_down`, by conflict) is out. So is an edit that touches the same text as a
    chosen one; the next edit is taken instead.
    """
    most = edits_for(rate)
    leaks = {leak.edit_id: leak.copied for patch in patches for leak in patch.leaks}
    left = list(pool.edits)
    taken: list[Pooled] = []
    builder = SkillBuilder(skill, limits_of(ctx.config))
    covered: Counter[str] = Counter()
    out: list[Ranked] = []
    while left:
        worth = {p.edit.id: relevance(p, taken, covered) for p in left}

        def rank(p: Pooled, worth: Mapping[str, tuple[Relevance, float]] = worth) -> tuple[bool, float, str]:
            chosen = p.edit.source.startswith(REVIEW)
            return (not chosen, -worth[p.edit.id][1], p.edit.id)

        best = min(left, key=rank)
        left.remove(best)
        parts, value = worth[best.edit.id]
        barred = _barred(best.edit, len(taken), most, turned_down or {}, builder)
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
    ctx.emit(Selected(edits=len(taken), rate=rate, conflicts=len(pool.conflicts), leaks=leaking))
    return out


def relevance(pooled: Pooled, taken: Sequence[Pooled], covered: Mapping[str, int]) -> tuple[Relevance, float]:
    """What an edit adds to those that are taken: its parts, and their value."""
    cause = normal_name(pooled.edit.pattern)
    parts = Relevance(
        new_failures=sum(covered.get(tid, 0) == 0 for tid in pooled.edit.trajectory_ids),
        support=pooled.support,
        new_cause=not (cause and any(normal_name(p.edit.pattern) == cause for p in taken)),
    )
    gain = sum(AGAIN ** covered.get(tid, 0) for tid in sorted(pooled.edit.trajectory_ids))
    return parts, gain * (1.0 if parts.new_cause else SAME_CAUSE)


def _barred(edit: Edit, taken: int, most: int, turned_down: Mapping[str, str], builder: SkillBuilder) -> str:
    """Why an edit is left out; empty if it is taken. `builder` has the edits that were taken before."""
    if edit.id in turned_down:
        return f"left out: decided against in review, conflict {turned_down[edit.id]}"
    if taken >= most:
        return f"clipped at {most}"
    skip = builder.add(edit)
    return f"left out: {skip.reason}" if skip else ""


def _why(parts: Relevance, most: int) -> str:
    repeated = "" if parts.new_cause else "; an edit before it has the same cause"
    covers = f"covers {parts.new_failures} failures that no edit before it covers, {parts.support} in all"
    return f"within the rate of {most}: {covers}{repeated}"
