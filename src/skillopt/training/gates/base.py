"""The protocol of a gate, and its result: a verdict with its evidence."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Protocol

from pydantic import Field

from skillopt.record.step import Evidence, GateRecord, GateResult, Rule
from skillopt.skill import Applied, Skill
from skillopt.tasks.base import Trajectory
from skillopt.training.context import Context

EPSILON = 1e-9
"""The largest difference of two sums of scores that is treated as a rounding error, not as an improvement."""


class Verdict(GateResult):
    """A gate's decision with its evidence."""

    trajectories: tuple[Trajectory, ...] = Field(default=(), exclude=True)

    @property
    def values(self) -> dict[str, float]:
        return {row.item_id: row.after for row in self.evidence}

    def brief(self) -> Evidence:
        """The verdict's evidence without the list of items, for the patch log and the history."""
        return Evidence(**{name: getattr(self, name) for name in Evidence.model_fields})

    def record(self, candidate: Skill) -> GateRecord:
        """The verdict as gate.json stores it."""
        fields = {name: getattr(self, name) for name in GateResult.model_fields}
        return GateRecord(**fields, candidate_hash=candidate.hash)


class Gate(Protocol):
    """Decides between a candidate and the current skill.

    `current` has the current skill's score on each validation item that was not set aside. `tag` names the purpose and
    labels the samples; the default is `gate-<step>`. With the rule `strict`, the candidate must be better. With the
    rule `keep` (for guidance), it must not be worse.

    The same arguments and the same replies must give the same verdict; the clock and the budget must not influence it.

    If the verdict accepts the candidate, `after` is the candidate's score, and `known_scores` has its score on every
    item of `current` that was not set aside. The next gate compares with these scores. If a gate measures nothing,
    `measured` is 0, and `before` and `after` are None.
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


def mean(values: Collection[float]) -> float:
    return math.fsum(values) / len(values)


def remeasured(current: Mapping[str, float], known_scores: Mapping[str, float]) -> float | None:
    """The current skill's mean score after a gate that did not accept the candidate. The gate's new
    scores (`known_scores`) replace the old ones. None if the gate has no new scores."""
    return mean({**current, **known_scores}.values()) if known_scores else None


def skipped_verdict(current: Mapping[str, float], ctx: Context, *, gate: str, rule: Rule) -> Verdict:
    """The verdict on a candidate that equals the current skill."""
    score = mean(current.values())
    return Verdict(
        decision="skipped",
        gate=gate,
        rule=rule,
        metric=ctx.config.evaluation.metric,
        before=score,
        after=None,
        at_most=score,
        items=len(current),
        measured=0,
    )


def changed_types(verdict: Verdict, ctx: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The task types whose validation score rose, and the types whose score fell, on the items that were measured."""
    types = {item.id: item.type for item in ctx.env.items("val")}
    sums: dict[str, float] = {}
    for row in verdict.evidence:
        name = types.get(row.item_id, "")
        sums[name] = sums.get(name, 0.0) + row.change
    named = {name: value for name, value in sorted(sums.items()) if name}
    risen = tuple(name for name, value in named.items() if value > 1e-9)
    return risen, tuple(name for name, value in named.items() if value < -1e-9)
