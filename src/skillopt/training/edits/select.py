"""Select: takes the most useful edits one after the other, as many as the learning rate allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from skillopt.record.edits import EditPool, Patch, Pooled, Ranked, Relevance
from skillopt.record.events import Selected
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import SkillBuilder
from skillopt.training.context import Context
from skillopt.training.edits.carry import CARRIED, slots
from skillopt.training.edits.groups import units
from skillopt.training.edits.similarity import normal_name
from skillopt.training.edits.update import limits_of
from skillopt.training.schedule import edits_for

REVIEW = "review/"
"""An edit's source begins with this if a person chose the edit; such edits are selected first."""
AGAIN = 0.5
"""The weight of a failure that a selected edit covers already. The failure may have a second cause, so the weight is
not 0."""
SAME_CAUSE = 0.25
"""The value of an edit is multiplied by this if a selected edit already answers the same cause."""


def select(
    pool: EditPool,
    rate: float,
    skill: Skill,
    ctx: Context,
    *,
    patches: Sequence[Patch] = (),
    turned_down: Mapping[str, str] | None = None,
) -> list[Ranked]:
    """All edits in the order of their rank; as many as the learning rate allows are selected.

    The next edit (or group) is always the one that adds most to the edits before it. Edits that a person chose come
    first. Pending edits come last; up to half of the slots are reserved for them.

    An edit is left out if a person decided against it (`turned_down`), or if it touches the same text as a selected
    edit. Then the next edit is taken instead.
    """
    most = edits_for(rate)
    leaks = {leak.edit_id: leak.copied for patch in patches for leak in patch.leaks}
    left = _units(pool.edits)
    room = most - slots([p.edit for p in pool.edits if p.edit.source.startswith(CARRIED)], most)
    taken: list[Pooled] = []
    builder = SkillBuilder(skill, limits_of(ctx.config))
    covered: Counter[str] = Counter()
    out: list[Ranked] = []
    place = 0
    while left:
        worth = {one.edit.id: relevance(one, taken, covered) for one, _ in left}

        def rank(
            of: tuple[Pooled, list[Pooled]], worth: Mapping[str, tuple[Relevance, float]] = worth
        ) -> tuple[bool, bool, float, str]:
            edit = of[0].edit
            chosen, again = (edit.source.startswith(prefix) for prefix in (REVIEW, CARRIED))
            return (not chosen, again, -worth[edit.id][1], edit.id)

        best = min(left, key=rank)
        left.remove(best)
        one, members = best
        place += 1
        parts, value = worth[one.edit.id]
        limit = most if one.edit.source.startswith(CARRIED) else room
        barred = _barred([p.edit for p in members], len(taken), limit, turned_down or {}, builder)
        if not barred:
            taken.append(one)
            covered.update(one.edit.trajectory_ids)
        out += [
            Ranked(
                edit=pooled.edit,
                support=pooled.support,
                relevance=round(value, 6),
                parts=parts,
                selected=not barred,
                reason=f"rank {place}, {barred or _why(parts, most)}",
                leak=next((leaks[name] for name in pooled.merged if name in leaks), ""),
            )
            for pooled in members
        ]
    leaking = sum(bool(row.leak) for row in out if row.selected)
    ctx.emit(Selected(edits=len(taken), rate=rate, conflicts=len(pool.conflicts), leaks=leaking))
    return out


def relevance(pooled: Pooled, taken: Sequence[Pooled], covered: Mapping[str, int]) -> tuple[Relevance, float]:
    """The value that an edit adds to the selected edits, with the parts of this value."""
    cause = normal_name(pooled.edit.pattern)
    parts = Relevance(
        new_failures=sum(covered.get(tid, 0) == 0 for tid in pooled.edit.trajectory_ids),
        support=pooled.support,
        new_cause=not (cause and any(normal_name(p.edit.pattern) == cause for p in taken)),
    )
    gain = sum(AGAIN ** covered.get(tid, 0) for tid in sorted(pooled.edit.trajectory_ids))
    return parts, gain * (1.0 if parts.new_cause else SAME_CAUSE)


def _units(pooled: Sequence[Pooled]) -> list[tuple[Pooled, list[Pooled]]]:
    """The groups of edits. For each: one edit that represents the group, and the group's members."""
    by_id = {p.edit.id: p for p in pooled}
    found = []
    for edits in units(p.edit for p in pooled):
        cited = tuple(sorted({tid for edit in edits for tid in edit.trajectory_ids}))
        members = [by_id[edit.id] for edit in edits]
        support = members[0].support if len(members) == 1 else len(cited)
        one = members[0].edit.model_copy(update={"trajectory_ids": cited})
        found.append((members[0].model_copy(update={"edit": one, "support": support}), members))
    return found


def _barred(edits: Sequence[Edit], taken: int, most: int, turned_down: Mapping[str, str], builder: SkillBuilder) -> str:
    """The reason why a group is left out; empty if it is taken. `builder` has the edits that are already taken."""
    if down := next((turned_down[edit.id] for edit in edits if edit.id in turned_down), ""):
        return f"left out: decided against in review, conflict {down}"
    if taken >= most:
        return f"clipped at {most}"
    skip = builder.add_all(edits)
    return f"left out: {skip.reason}" if skip else ""


def _why(parts: Relevance, most: int) -> str:
    repeated = "" if parts.new_cause else "; an edit before it has the same cause"
    covers = f"covers {parts.new_failures} failures that no edit before it covers, {parts.support} in all"
    return f"within the rate of {most}: {covers}{repeated}"
