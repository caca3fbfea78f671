"""The protocol of a gate, and what every gate gives: a verdict with its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from skillopt.core.context import Context
from skillopt.envs.base import Item, Trajectory
from skillopt.skill import Applied, Skill

Rule = Literal["strict", "keep"]
"""strict: the candidate must raise the score; keep: it must not lower it."""
EPSILON = 1e-9
"""Sums of soft scores differ by rounding; that is no improvement."""


class ItemEvidence(BaseModel):
    model_config = ConfigDict(frozen=True)

    item_id: str
    before: float
    after: float
    hard: float
    """Whether the candidate solved it, whatever the metric."""
    repeats: int = 0
    """Fresh samples of each skill behind `before` and `after`; 0 where each has its first."""


class Verdict(BaseModel):
    """A decision with its evidence."""

    model_config = ConfigDict(frozen=True)

    decision: Literal["accept", "reject", "indecisive", "skipped"]
    """indecisive: better, but the evidence does not hold; skipped: no edit could be applied."""
    gate: str = "strict"
    """The name of the gate that decided."""
    rule: Rule
    metric: str
    before: float
    after: float | None
    """The candidate's score; None when the gate could stop before it was known."""
    at_most: float
    """What the candidate can reach at best; equal to `after` where that is known."""
    items: int
    measured: int
    p: float | None = None
    """How likely the candidate looks this good without being better; None where nothing was repeated."""
    repeats: int = 0
    """Rounds of fresh samples of both skills on the items on which they differ."""
    reason: str = ""
    """Why a candidate that scores higher was rejected all the same."""
    set_aside: dict[str, str] = {}
    """Items that the endpoint refused for their own sake during this gate."""
    standing: dict[str, float] = {}
    """What this gate taught of the skill that training goes on from: its score, item by item."""
    evidence: tuple[ItemEvidence, ...] = ()
    trajectories: tuple[Trajectory, ...] = Field(default=(), exclude=True)
    telemetry: dict[str, int] = {}

    @property
    def accepted(self) -> bool:
        return self.decision == "accept"

    @property
    def values(self) -> dict[str, float]:
        return {row.item_id: row.after for row in self.evidence}

    def brief(self) -> dict[str, object]:
        """For the patch log and the history: the evidence without the item list."""
        return self.model_dump(mode="json", exclude={"evidence", "standing", "telemetry"})


class Gate(Protocol):
    """Decides between a candidate and the current skill.

    `current` is what is known of the current skill: its score on each selection item that counts. `tag` names the
    purpose and labels the samples, `gate-<step>` where it is empty. Rule `strict`: the candidate must be better;
    `keep` (guidance): it must not be worse. The same arguments and the same replies must give the same verdict; the
    clock and the budget play no part. An accepted verdict has the candidate's score (`after`), and in `standing` its
    score on every item of `current` that was not set aside: the next gate compares with those.
    """

    async def __call__(
        self,
        skill: Skill,
        candidate: Applied,
        current: Mapping[str, float],
        ctx: Context,
        *,
        tag: str = "",
        rule: Rule = "strict",
    ) -> Verdict: ...


def nothing(current: Mapping[str, float], ctx: Context) -> Verdict:
    """The verdict on a candidate that equals the current skill."""
    score = math.fsum(current.values()) / len(current)
    return Verdict(
        decision="skipped",
        rule="strict",
        metric=ctx.config.evaluation.metric,
        before=score,
        after=None,
        at_most=score,
        items=len(current),
        measured=0,
    )


def fallen_type(evidence: Sequence[ItemEvidence], items: Mapping[str, Item], margin: float | None) -> str:
    """The regression guard: names a task type whose score falls by more than the margin; empty where none does."""
    if margin is None:
        return ""
    groups: dict[str, list[ItemEvidence]] = {}
    for row in evidence:
        groups.setdefault(items[row.item_id].type, []).append(row)
    for name, rows in sorted(groups.items()):
        before, after = (math.fsum(getattr(row, side) for row in rows) / len(rows) for side in ("before", "after"))
        if before - after > margin + EPSILON:
            return f"task type '{name}' falls from {before:.2f} to {after:.2f}"
    return ""


def changed_types(verdict: Verdict, ctx: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The task types whose validation score rose, and those whose score fell, among the items that were measured."""
    types = {item.id: item.type for item in ctx.env.items("val")}
    sums: dict[str, float] = {}
    for row in verdict.evidence:
        name = types.get(row.item_id, "")
        sums[name] = sums.get(name, 0.0) + row.after - row.before
    named = {name: value for name, value in sorted(sums.items()) if name}
    risen = tuple(name for name, value in named.items() if value > 1e-9)
    return risen, tuple(name for name, value in named.items() if value < -1e-9)
