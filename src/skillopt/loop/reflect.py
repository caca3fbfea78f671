"""Reflect, the backward pass: analysts read scored trajectories and propose edits."""

from __future__ import annotations

from collections.abc import Sequence

from skillopt.analysts import open_analysts
from skillopt.analysts.base import Analyst, Dropped, Kind, Memory, Minibatch, Patch
from skillopt.envs.base import RolloutError, Trajectory
from skillopt.errors import Stopped
from skillopt.loop.context import Context
from skillopt.loop.rollout import failed, mean_score, scored
from skillopt.loop.update import apply_within_limits
from skillopt.models.call import gather_all
from skillopt.skill import Edit, Skill


async def reflect(
    skill: Skill, results: Sequence[Trajectory | RolloutError], memory: Memory, ctx: Context
) -> list[Patch]:
    """Patches of all analysts on all minibatches, in a fixed order; then deep reflection where one cause prevails."""
    analysts = open_analysts(ctx.config.gradient.analysts)
    trajectories = sorted(scored(results), key=lambda trajectory: trajectory.id)
    score = mean_score(trajectories, ctx.config.evaluation.metric)
    ctx.emit("reflect_started", score=score, errors=len(failed(results)))
    with ctx.timed("reflect"):
        shallow = await _propose(analysts, skill, _minibatches(trajectories, ctx), memory, ctx)
        deep = await _propose(analysts, skill, _deep_minibatches(trajectories, shallow, ctx), memory, ctx)
    patches = shallow + deep
    if patches and all(patch.unreachable for patch in patches):
        raise Stopped(f"reflect: no reply from the optimizer; the last error was: {patches[-1].lost}")
    usable = [_usable(patch, number, skill, ctx) for number, patch in enumerate(patches)]
    edits, lost = sum(len(patch.edits) for patch in usable), sum(bool(patch.lost) for patch in usable)
    ctx.emit("reflected", patches=len(usable), edits=edits, lost=lost)
    return usable


async def _propose(
    analysts: list[Analyst], skill: Skill, minibatches: list[Minibatch], memory: Memory, ctx: Context
) -> list[Patch]:
    return await gather_all(
        analyst.propose(skill, minibatch, memory, ctx.optimizer, ctx.config)
        for analyst in analysts
        for minibatch in minibatches
        if minibatch.kind in analyst.kinds
    )


def _minibatches(trajectories: list[Trajectory], ctx: Context) -> list[Minibatch]:
    """Failures and successes, cut in id order, so that arrival cannot change them."""
    size = ctx.config.gradient.minibatch_size
    kinds: tuple[tuple[Kind, bool], ...] = (("failure", False), ("success", True))
    out: list[Minibatch] = []
    for kind, passed in kinds:
        group = [t for t in trajectories if (t.score.hard >= 1) == passed]
        out += [
            Minibatch(id=f"{ctx.step:04d}-{kind}-{at // size:02d}", kind=kind, trajectories=group[at : at + size])
            for at in range(0, len(group), size)
        ]
    return [*out, Minibatch(id=f"{ctx.step:04d}-batch", kind="batch", trajectories=trajectories)]


def _deep_minibatches(trajectories: list[Trajectory], patches: list[Patch], ctx: Context) -> list[Minibatch]:
    """One for each cause that more than the threshold's share of failures has, with passing trajectories beside."""
    failures = {t.id for t in trajectories if t.score.hard < 1}
    causes: dict[str, set[str]] = {}
    for patch in patches:
        for pattern in patch.patterns:
            causes.setdefault(normal_name(pattern.name), set()).update(failures & set(pattern.trajectory_ids))
    least = max(1, ctx.config.gradient.deep_reflect_threshold * len(failures))
    size = ctx.config.gradient.minibatch_size
    passes = [t for t in trajectories if t.score.hard >= 1][:size]
    return [
        Minibatch(
            id=f"{ctx.step:04d}-deep-{number:02d}",
            kind="deep",
            pattern=name,
            trajectories=[t for t in trajectories if t.id in causes[name]][: 2 * size] + passes,
        )
        for number, name in enumerate(name for name, ids in sorted(causes.items()) if len(ids) > least)
    ]


def normal_name(pattern: str) -> str:
    """Two analysts' names for one cause, made equal where only case and punctuation differ."""
    return " ".join("".join(c if c.isalnum() else " " for c in pattern.casefold()).split())


def _usable(patch: Patch, number: int, skill: Skill, ctx: Context) -> Patch:
    """Number the edits, and drop those that could never be applied, so that they take no other's place."""
    kept: list[Edit] = []
    dropped = list(patch.dropped)
    for place, edit in enumerate(patch.edits):
        named = edit.model_copy(update={"id": f"{ctx.step:04d}-{number:02d}-{place:02d}"})
        skips = apply_within_limits(skill, [named], ctx).skipped
        if skips:
            dropped.append(Dropped(kind=skips[0].kind, reason=skips[0].reason, edit=named.model_dump(mode="json")))
        else:
            kept.append(named)
    return patch.model_copy(update={"edits": tuple(kept), "dropped": tuple(dropped)})
