"""Reflect, the backward pass: analysts read scored trajectories and propose edits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from skillopt.errors import Stopped
from skillopt.models.call import gather_all
from skillopt.record.edits import Dropped, Patch
from skillopt.record.events import Reflected, ReflectStarted
from skillopt.skill import Edit, Skill
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Item, RolloutError, Trajectory
from skillopt.training.analysts.base import Kind, Minibatch
from skillopt.training.analysts.leaks import find_leaks
from skillopt.training.context import Context
from skillopt.training.edits.similarity import normal_name, same_text
from skillopt.training.edits.update import update
from skillopt.training.requests.blocks import shown_tokens
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.rollout import failed, mean_score, require_most, scored
from skillopt.training.smoke_test import check_first_scores


async def reflect(
    skill: Skill,
    items: Sequence[Item],
    results: Sequence[Trajectory | RolloutError],
    knowledge: OptimizerContext,
    ctx: Context,
) -> list[Patch]:
    """Patches of all analysts, in a fixed order; then deep reflection on causes that no edit answers."""
    require_most(results, "rollout")
    trajectories = sorted(scored(results), key=lambda trajectory: trajectory.id)
    if ctx.step == 1:
        await check_first_scores(items, trajectories, ctx)
    score = mean_score(trajectories, ctx.config.evaluation.metric)
    ctx.emit(ReflectStarted(score=score, errors=len(failed(results))))
    with ctx.timed("reflect"):
        shallow = await _patches(skill, minibatches(trajectories, ctx), knowledge, ctx)
        if shallow and all(patch.unreachable for patch in shallow):
            raise Stopped(f"reflect: no reply from the optimizer; the last error was: {shallow[-1].lost}")
        deep = await _patches(skill, deep_minibatches(trajectories, shallow, ctx), knowledge, ctx)
    patches = shallow + deep
    shown = {t.item_id: "\n".join((t.input, *t.answers)) for t in trajectories}
    shown |= {item.id: "\n".join((task_text(item), *item.answers)) for item in knowledge.others}
    usable = [_usable(patch, number, skill, shown, ctx) for number, patch in enumerate(patches)]
    ctx.emit(
        Reflected(
            patches=len(usable),
            edits=sum(len(patch.edits) for patch in usable),
            lost=sum(bool(patch.lost) for patch in usable),
            asked_again=sum(len(patch.unusable) - bool(patch.lost and not patch.unreachable) for patch in usable),
            leaks=sum(len(patch.leaks) for patch in usable),
            deep=tuple(next((edit.pattern for edit in patch.edits), patch.id) for patch in deep),
        )
    )
    return usable


async def _patches(
    skill: Skill, minibatches: Sequence[Minibatch], knowledge: OptimizerContext, ctx: Context
) -> list[Patch]:
    """Analyst by analyst, each on the kinds of minibatch that it wants to see."""
    return await gather_all(
        analyst.propose(skill, minibatch, knowledge, ctx.optimizer, ctx.config)
        for analyst in ctx.analysts
        for minibatch in minibatches
        if minibatch.kind in analyst.kinds
    )


def minibatches(trajectories: list[Trajectory], ctx: Context) -> list[Minibatch]:
    """The parts of a batch that analysts read. Without a failure there is nothing to ask an optimizer about."""
    failures = [t for t in trajectories if t.score.hard < 1]
    cut: list[Minibatch] = []
    kinds: tuple[tuple[Kind, list[Trajectory]], ...] = (("mixed", trajectories), ("failure", failures))
    for kind, read in kinds:
        parts = [part for part in _parts(read, ctx) if any(t.score.hard < 1 for t in part)]
        cut += [
            Minibatch(id=f"{ctx.step:04d}-{kind}-{number:02d}", kind=kind, trajectories=part)
            for number, part in enumerate(parts)
        ]
    return [*cut, Minibatch(id=f"{ctx.step:04d}-batch", kind="batch", trajectories=trajectories)]


def _parts(trajectories: list[Trajectory], ctx: Context) -> list[list[Trajectory]]:
    """As large as the config wants them. What is left is one request if it fits; else several of about one size."""
    size, budget = ctx.config.gradient.minibatch_size, ctx.config.gradient.prompt_tokens
    full = len(trajectories) // size * size if size else 0
    left = trajectories[full:]
    tokens = sum(min(shown_tokens(t), budget // 4) for t in left if t.score.hard < 1)
    each = math.ceil(len(left) / max(1, math.ceil(tokens / budget)))
    whole = [trajectories[at : at + size] for at in range(0, full, size or 1)]
    return whole + [left[at : at + each] for at in range(0, len(left), each or 1)]


def deep_minibatches(trajectories: list[Trajectory], patches: list[Patch], ctx: Context) -> list[Minibatch]:
    """One for each cause that more than the threshold's share of failures has and that no edit answers."""
    failures_by_cause = causes(patches, trajectories)
    failures = sum(t.score.hard < 1 for t in trajectories)
    least = max(1, ctx.config.gradient.deep_reflect_threshold * failures)
    edits = [edit for patch in patches for edit in patch.edits]
    open_causes = [
        name for name, ids in failures_by_cause.items() if len(ids) > least and not _answered(name, ids, edits)
    ]
    passes = [t for t in trajectories if t.score.hard >= 1]
    return [
        Minibatch(
            id=f"{ctx.step:04d}-deep-{number:02d}",
            kind="deep",
            pattern=name,
            trajectories=[t for t in trajectories if t.id in failures_by_cause[name]] + passes,
        )
        for number, name in enumerate(open_causes)
    ]


def _answered(cause: str, ids: set[str], edits: Sequence[Edit]) -> bool:
    """Does an edit name this cause, or cite all of its failures?"""
    return any(normal_name(edit.pattern) == cause or ids <= set(edit.trajectory_ids) for edit in edits)


def _usable(patch: Patch, number: int, skill: Skill, shown: Mapping[str, str], ctx: Context) -> Patch:
    """Number the edits, and drop those that could never be applied, so that other edits are selected instead."""
    kept: list[Edit] = []
    dropped = list(patch.dropped)
    for position, edit in enumerate(patch.edits):
        named = edit.model_copy(update={"id": f"{ctx.step:04d}-{number:02d}-{position:02d}"})
        skips = update(skill, [named], ctx).skipped
        if skips:
            dropped.append(Dropped(kind=skips[0].kind, reason=skips[0].reason, edit=named.model_dump(mode="json")))
        elif line := repeated(named, skill):
            reason = f"repeats what the skill says: {line[:100]}"
            dropped.append(Dropped(kind="repeats", reason=reason, edit=named.model_dump(mode="json")))
        else:
            kept.append(named)
    leaks = find_leaks(kept, shown, skill)
    return patch.model_copy(update={"edits": tuple(kept), "dropped": tuple(dropped), "leaks": leaks})


def repeated(edit: Edit, skill: Skill) -> str:
    """The line of the skill that an addition repeats in nearly the same words; empty if none."""
    if edit.op != "add":
        return ""
    lines = (skill.read(edit.file) or "").splitlines()
    return next((line for line in lines if line.strip() and same_text(line, edit.text)), "")


_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\d+")


def causes(patches: Sequence[Patch], trajectories: Sequence[Trajectory]) -> dict[str, set[str]]:
    """The ids of the failures by cause. A failure for which no analyst names a cause has its scorer's."""
    failures = {t.id: t for t in trajectories if t.score.hard < 1}
    failures_by_cause: dict[str, set[str]] = {}
    for patch in patches:
        for pattern in patch.patterns:
            shown = failures.keys() & set(pattern.trajectory_ids)
            if shown and (name := normal_name(pattern.name)):
                failures_by_cause.setdefault(name, set()).update(shown)
    named = set().union(*failures_by_cause.values()) if failures_by_cause else set()
    for trajectory in failures.values():
        if trajectory.id not in named and (cause := feedback_cause(trajectory)):
            failures_by_cause.setdefault(cause, set()).add(trajectory.id)
    return dict(sorted(failures_by_cause.items()))


def feedback_cause(trajectory: Trajectory) -> str:
    """The scorer's feedback as a short name: the first line without quotations and numbers; empty if it says little."""
    first = next(iter(trajectory.score.feedback.strip().splitlines()), "")
    words = normal_name(_QUOTED.sub(" ", first)).split()
    return " ".join(words[:10]) if len(words) >= 3 else ""
