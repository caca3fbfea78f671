"""Select: rank the edits by relevance and clip them to the learning rate."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from skillopt.loop.aggregate import Pool, Pooled
from skillopt.loop.context import Context
from skillopt.loop.schedule import edits_for
from skillopt.skill import Edit


class Ranked(BaseModel):
    """An edit's place, and why it is in or out."""

    model_config = ConfigDict(frozen=True)

    edit: Edit
    support: int
    relevance: float
    selected: bool
    reason: str


def select(pool: Pool, rate: float, ctx: Context) -> list[Ranked]:
    """All edits, the most relevant first; as many as the learning rate allows are selected."""
    most = edits_for(rate)
    widest = max((pooled.support for pooled in pool.edits), default=1)
    ranked = sorted(pool.edits, key=lambda pooled: (-relevance(pooled, widest), pooled.edit.id))
    out = [
        Ranked(
            edit=pooled.edit,
            support=pooled.support,
            relevance=round(relevance(pooled, widest), 6),
            selected=place <= most,
            reason=f"rank {place}, " + (f"within the rate of {most}" if place <= most else f"clipped at {most}"),
        )
        for place, pooled in enumerate(ranked, 1)
    ]
    ctx.emit("selected", edits=min(most, len(out)), rate=rate, conflicts=len(pool.conflicts))
    return out


def relevance(pooled: Pooled, widest: int) -> float:
    """How much of the evidence speaks for an edit (its support), then what its analyst expects of it."""
    return 0.7 * pooled.support / widest + 0.3 * pooled.edit.impact
