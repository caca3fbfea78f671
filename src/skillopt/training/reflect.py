"""Reflect, the backward pass: analysts read scored trajectories and propose edits."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from skillopt.errors import Stopped
from skillopt.models.call import gather_all
from skillopt.record.edits import Dropped, Patch
from skillopt.record.events import Reflected, ReflectStarted
from skillopt.skill import Edit, Skill
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import RolloutError, Trajectory
from skillopt.training.analysts.base import Kind, Minibatch
from skillopt.training.analysts.leaks import find_leaks
from skillopt.training.context import Context
from skillopt.training.edits.similarity import normal_name, same_text
from skillopt.training.edits.update import update
from skillopt.training.requests.blocks import shown_tokens
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.rollout import Rollouts, failed, mean_score, require_most, scored
from skillopt.training.smoke_test import check_first_scores

KINDS: tuple[Kind, ...] = ("mixed", "failure", "batch")


async def reflect(skill: Skill, rollouts: Rollouts, knowledge: OptimizerContext, ctx: Context) -> list[Patch]:
    """Return the patches of all analysts in a fixed order, then the patches about causes that no edit answers (deep
    reflection).

    A batch that fits into one request is read in one request. If the config cuts the batch into minibatches, each
    minibatch is read as soon as its rollouts are done. Minibatches are cut in id order, so the result does not depend
    on which rollout ends first.
    """
    reading = BatchReader(skill, knowledge, ctx)
    with ctx.timed("rollout"):
        async for result in rollouts:
            reading.add(result)
    require_most(reading.results, "rollout")
    trajectories = scored(reading.results)
    if ctx.step == 1:
        await check_first_scores(rollouts.items, trajectories, ctx)
    score = mean_score(trajectories, ctx.config.evaluation.metric)
    ctx.emit(ReflectStarted(score=score, errors=len(failed(reading.results))))
    with ctx.timed("reflect"):
        shallow = await reading.patches()
        if shallow and all(patch.unreachable for patch in shallow):
            raise Stopped(f"reflect: no reply from the optimizer; the last error was: {shallow[-1].lost}")
        minibatches = deep_minibatches(trajectories, shallow, ctx)
        with_edits = replace(knowledge, proposed=tuple(edit for patch in shallow for edit in patch.edits))
        deep = await gather_all(
            analyst.propose(skill, minibatch, with_edits, ctx.optimizer, ctx.config)
            for analyst in ctx.analysts
            for minibatch in minibatches
            if "deep" in analyst.kinds
        )
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


class BatchReader:
    """Cuts a batch into minibatches; the analysts read each minibatch as soon as it is full."""

    def __init__(self, skill: Skill, knowledge: OptimizerContext, ctx: Context) -> None:
        self.results: list[Trajectory | RolloutError] = []
        self._skill, self._case, self._ctx = skill, knowledge, ctx
        self._open: dict[Kind, list[Trajectory]] = {kind: [] for kind in KINDS}
        self._cut = dict.fromkeys(KINDS, 0)
        self._tasks: dict[tuple[int, Kind, int], asyncio.Task[Patch]] = {}

    def add(self, result: Trajectory | RolloutError) -> None:
        """Add the next result; results come in id order."""
        self.results.append(result)
        size = self._ctx.config.gradient.minibatch_size
        if isinstance(result, Trajectory):
            for kind in KINDS:
                if kind != "failure" or result.score.hard < 1:
                    self._open[kind].append(result)
                if kind != "batch" and size and len(self._open[kind]) == size:
                    self._read(kind, self._taken(kind))

    async def patches(self) -> list[Patch]:
        """Let the analysts read the rest of the batch, and return all patches, sorted by analyst and kind of
        minibatch."""
        for kind in KINDS:
            left = self._taken(kind)
            parts = [left] if kind == "batch" else self._fitting(left)
            for part in parts:
                self._read(kind, part)
        order = sorted(self._tasks, key=lambda key: (key[0], KINDS.index(key[1]), key[2]))
        return await gather_all(self._tasks[key] for key in order)

    def _taken(self, kind: Kind) -> list[Trajectory]:
        taken, self._open[kind] = self._open[kind], []
        return taken

    def _fitting(self, trajectories: list[Trajectory]) -> list[list[Trajectory]]:
        """Divide the trajectories into as few requests as the token limit allows. All requests get about the same
        number of trajectories."""
        budget = self._ctx.config.gradient.prompt_tokens
        sizes = [min(shown_tokens(t), budget // 4) for t in trajectories if t.score.hard < 1]
        requests = max(1, math.ceil(sum(sizes) / budget))
        each = math.ceil(len(trajectories) / requests)
        return [trajectories[at : at + each] for at in range(0, len(trajectories), each)] if trajectories else []

    def _read(self, kind: Kind, read: list[Trajectory]) -> None:
        """Ask every analyst that reads this kind of minibatch. A minibatch without failures is skipped, unless its kind
        is `batch`."""
        ctx, number = self._ctx, self._cut[kind]
        if kind != "batch" and all(t.score.hard >= 1 for t in read):
            return
        self._cut[kind] = number + 1
        name = f"{ctx.step:04d}-batch" if kind == "batch" else f"{ctx.step:04d}-{kind}-{number:02d}"
        minibatch = Minibatch(id=name, kind=kind, trajectories=read)
        for position, analyst in enumerate(ctx.analysts):
            if kind in analyst.kinds:
                work = analyst.propose(self._skill, minibatch, self._case, ctx.optimizer, ctx.config)
                self._tasks[position, kind, number] = ctx.background.start(work)


def deep_minibatches(trajectories: list[Trajectory], patches: list[Patch], ctx: Context) -> list[Minibatch]:
    """One minibatch for each cause that no edit answers, if more than the share `deep_reflect_threshold` of the
    failures have this cause."""
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
    """True if an edit names this cause, or if the edits cite every failure with this cause."""
    return any(normal_name(edit.pattern) == cause for edit in edits) or ids <= {
        cited for edit in edits for cited in edit.trajectory_ids
    }


def _usable(patch: Patch, number: int, skill: Skill, shown: Mapping[str, str], ctx: Context) -> Patch:
    """Return the patch with an id for each edit and with a list of the edits that copy tasks. Edits that cannot be
    applied, or that repeat the skill, are dropped."""
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
    minimal = patch.minimal and tuple(
        edit.model_copy(update={"id": f"{ctx.step:04d}-{number:02d}-minimal-{position}"})
        for position, edit in enumerate(patch.minimal, 1)
    )
    fields = {"edits": tuple(kept), "minimal": minimal, "dropped": tuple(dropped), "leaks": leaks}
    return patch.model_copy(update=fields)


def repeated(edit: Edit, skill: Skill) -> str:
    """The line of the skill that an `add` repeats almost word for word; empty if there is none."""
    if edit.op != "add":
        return ""
    lines = (skill.read(edit.file) or "").splitlines()
    return next((line for line in lines if line.strip() and same_text(line, edit.text)), "")


_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\d+")


def causes(patches: Sequence[Patch], trajectories: Sequence[Trajectory]) -> dict[str, set[str]]:
    """The ids of failed trajectories by cause. If no analyst names a cause for a failure, the scorer's feedback gives
    the cause."""
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
    """The cause of a failure: the first line of the scorer's feedback, without quotations and numbers. Empty if fewer
    than three words are left."""
    first = next(iter(trajectory.score.feedback.strip().splitlines()), "")
    words = normal_name(_QUOTED.sub(" ", first)).split()
    return " ".join(words[:10]) if len(words) >= 3 else ""
