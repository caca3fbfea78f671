"""Select: rank the edits by relevance and clip them to the learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.base import Patch
from skillopt.core.context import Context
from skillopt.core.schedule import edits_for
from skillopt.edits.aggregate import Pool, Pooled, same_edit
from skillopt.edits.similarity import normal_name
from skillopt.run.state import Rejected
from skillopt.skill import Edit

REVIEW = "review/"
"""How the source of an edit begins that a person chose; it goes before all others."""
_SHORTEST_PASSAGE = 12
"""Characters that a passage must have to be kept for the successes that rely on it."""


class Relevance(BaseModel):
    """What an edit's place is made of, each from 0 to 1."""

    model_config = ConfigDict(frozen=True)

    support: float
    """Trajectories that speak for it, against the edit with most."""
    impact: float
    """What its analyst expects of it."""
    frequency: float
    """The share of all failures with a known cause that have the cause it mends."""
    novelty: float
    """1, halved for each time that a gate has turned it down."""

    @property
    def value(self) -> float:
        return (0.6 * self.support + 0.25 * self.impact + 0.15 * self.frequency) * self.novelty


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
    ctx: Context,
    *,
    patches: Sequence[Patch] = (),
    rejected: Sequence[Rejected] = (),
    order: Sequence[str] = (),
    turned_down: Mapping[str, str] | None = None,
) -> list[Ranked]:
    """All edits, the most relevant first; as many as the learning rate allows are selected.

    `order`, where the optimizer model was asked for one, goes before relevance. A person's choice goes before both,
    and what a person decided against (`turned_down`, by conflict) is out.
    """
    most = edits_for(rate)
    widest = max((pooled.support for pooled in pool.edits), default=1)
    shares = cause_shares(patches)
    parts = {p.edit.id: relevance(p, widest, shares, rejected) for p in pool.edits}
    places = {edit_id: place for place, edit_id in enumerate(order)}
    leaks = {leak.edit_id: leak.copied for patch in patches for leak in patch.leaks}
    passages = relied_on(patches)

    def place(pooled: Pooled) -> tuple[bool, int, float, str]:
        edit = pooled.edit
        chosen = edit.source.startswith(REVIEW)
        return (not chosen, places.get(edit.id, len(places)), -parts[edit.id].value, edit.id)

    out: list[Ranked] = []
    taken = 0
    for number, pooled in enumerate(sorted(pool.edits, key=place), 1):
        edit = pooled.edit
        barred = _decided_against(edit, turned_down or {}) or _needed(pooled, passages)
        selected = taken < most and not barred
        taken += selected
        limit = f"within the rate of {most}" if selected else barred or f"clipped at {most}"
        row = Ranked(
            edit=edit,
            support=pooled.support,
            relevance=round(parts[edit.id].value, 6),
            parts=parts[edit.id],
            selected=selected,
            reason=f"rank {number}, {limit}",
            leak=next((leaks[name] for name in pooled.merged if name in leaks), ""),
        )
        out.append(row)
    leaking = sum(bool(row.leak) for row in out if row.selected)
    ctx.emit("selected", edits=taken, rate=rate, conflicts=len(pool.conflicts), leaks=leaking)
    return out


def relevance(pooled: Pooled, widest: int, shares: Mapping[str, float], rejected: Sequence[Rejected] = ()) -> Relevance:
    """How much speaks for an edit, and how often it was tried in vain."""
    refused = sum(same_edit(entry.edit, pooled.edit) for entry in rejected)
    return Relevance(
        support=round(pooled.support / widest, 6),
        impact=pooled.edit.impact,
        frequency=round(shares.get(normal_name(pooled.edit.pattern), 0.0), 6),
        novelty=0.5**refused,
    )


def cause_shares(patches: Sequence[Patch]) -> dict[str, float]:
    """For each cause, the share of the failures with a known cause that have it."""
    causes: dict[str, set[str]] = {}
    for patch in patches:
        if not patch.source.endswith("/success"):
            for pattern in patch.patterns:
                causes.setdefault(normal_name(pattern.name), set()).update(pattern.trajectory_ids)
    known = set().union(*causes.values()) if causes else set()
    return {name: len(ids) / len(known) for name, ids in causes.items() if known}


def relied_on(patches: Sequence[Patch]) -> dict[str, set[str]]:
    """Passages of the skill that successes rely on, as success analysts quote them, and those successes."""
    passages: dict[str, set[str]] = {}
    for patch in patches:
        if patch.source.endswith("/success"):
            for pattern in patch.patterns:
                if len(pattern.cause.strip()) >= _SHORTEST_PASSAGE:
                    passages.setdefault(pattern.cause.strip(), set()).update(pattern.trajectory_ids)
    return passages


def _decided_against(edit: Edit, turned_down: Mapping[str, str]) -> str:
    return f"left out: decided against in review, conflict {turned_down[edit.id]}" if edit.id in turned_down else ""


def _needed(pooled: Pooled, passages: Mapping[str, set[str]]) -> str:
    """Why an edit may not touch its anchor: as many tasks succeed by that text as fail for want of the edit."""
    edit = pooled.edit
    if edit.op == "add" or edit.source.startswith(REVIEW):
        return ""
    held = [ids for passage, ids in passages.items() if passage in edit.anchor or edit.anchor in passage]
    relying = len(set().union(*held)) if held else 0
    return f"left out: {relying} successes rely on the text it changes" if relying and relying >= pooled.support else ""
