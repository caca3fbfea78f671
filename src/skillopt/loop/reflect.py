"""Reflect, the backward pass: analysts read scored trajectories and propose edits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from skillopt.analysts.base import Analyst, Dropped, Kind, Memory, Minibatch, Patch, Pattern
from skillopt.analysts.leaks import find_leaks
from skillopt.core.context import Context
from skillopt.core.rollout import Rollouts, failed, mean_score, require_most, scored
from skillopt.edits.similarity import normal_name, same_meaning
from skillopt.edits.update import apply_within_limits
from skillopt.envs.base import RolloutError, Trajectory
from skillopt.errors import Stopped
from skillopt.models.call import gather_all
from skillopt.skill import Edit, Skill

_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\d+")


async def reflect(skill: Skill, rollouts: Rollouts, memory: Memory, ctx: Context) -> list[Patch]:
    """Patches of all analysts on all minibatches, in a fixed order; then deep reflection where one cause prevails.

    A minibatch is read as soon as its trajectories are there. They are cut in id order, so that arrival cannot change
    them.
    """
    analysts = ctx.chosen.analysts
    reading = Reading(analysts, skill, memory, ctx)
    with ctx.timed("rollout"):
        async for result in rollouts:
            reading.add(result)
    require_most(reading.results, "rollout")
    trajectories = scored(reading.results)
    score = mean_score(trajectories, ctx.config.evaluation.metric)
    ctx.emit("reflect_started", score=score, errors=len(failed(reading.results)))
    with ctx.timed("reflect"):
        shallow = await reading.patches()
        if shallow and all(patch.unreachable for patch in shallow):
            raise Stopped(f"reflect: no reply from the optimizer; the last error was: {shallow[-1].lost}")
        shallow += _from_feedback(trajectories, shallow, ctx)
        deep = await _propose(analysts, skill, _deep_minibatches(trajectories, shallow, ctx), memory, ctx)
    patches = shallow + deep
    usable = [_usable(patch, number, skill, trajectories, ctx) for number, patch in enumerate(patches)]
    ctx.emit(
        "reflected",
        patches=len(usable),
        edits=sum(len(patch.edits) for patch in usable),
        lost=sum(bool(patch.lost) for patch in usable),
        asked_again=sum(len(patch.unusable) - bool(patch.lost and not patch.unreachable) for patch in usable),
        leaks=sum(len(patch.leaks) for patch in usable),
        deep=[next((edit.pattern for edit in patch.edits), patch.id) for patch in deep],
    )
    return usable


async def _propose(
    analysts: Sequence[Analyst], skill: Skill, minibatches: list[Minibatch], memory: Memory, ctx: Context
) -> list[Patch]:
    return await gather_all(
        analyst.propose(skill, minibatch, memory, ctx.optimizer, ctx.config)
        for analyst in analysts
        for minibatch in minibatches
        if minibatch.kind in analyst.kinds
    )


class Reading:
    """Minibatches of failures and of successes; each is read from the moment that it is full."""

    def __init__(self, analysts: Sequence[Analyst], skill: Skill, memory: Memory, ctx: Context) -> None:
        self.results: list[Trajectory | RolloutError] = []
        self._analysts, self._skill, self._memory, self._ctx = analysts, skill, memory, ctx
        self._open: dict[Kind, list[Trajectory]] = {"failure": [], "success": []}
        self._cut: dict[Kind, int] = {"failure": 0, "success": 0}
        self._tasks: dict[tuple[int, Kind, int, int], asyncio.Task[Patch]] = {}

    def add(self, result: Trajectory | RolloutError) -> None:
        """The next result in id order."""
        self.results.append(result)
        if isinstance(result, Trajectory):
            kind: Kind = "success" if result.score.hard >= 1 else "failure"
            self._open[kind].append(result)
            if len(self._open[kind]) == self._ctx.config.gradient.minibatch_size:
                self._read(kind)

    async def patches(self) -> list[Patch]:
        """After the last result: analyst by analyst, failures before successes before the batch as a whole."""
        for kind, left in self._open.items():
            if left:
                self._read(kind)
        self._open["batch"], self._cut["batch"] = scored(self.results), 0
        self._read("batch")
        place = {kind: number for number, kind in enumerate(self._cut)}
        order = sorted(self._tasks, key=lambda key: (key[0], place[key[1]], *key[2:]))
        return await gather_all(self._tasks[key] for key in order)

    def _read(self, kind: Kind) -> None:
        ctx, number = self._ctx, self._cut[kind]
        read, self._open[kind], self._cut[kind] = self._open[kind], [], number + 1
        name = f"{ctx.step:04d}-batch" if kind == "batch" else f"{ctx.step:04d}-{kind}-{number:02d}"
        known = known_patterns(ctx) if kind == "failure" else {}
        for sample in range(ctx.config.gradient.samples if kind == "failure" else 1):
            again = f"-{sample}" * bool(sample)
            minibatch = Minibatch(id=name + again, kind=kind, trajectories=read, known_patterns=known)
            for place, analyst in enumerate(self._analysts):
                if kind in analyst.kinds:
                    work = analyst.propose(self._skill, minibatch, self._memory, ctx.optimizer, ctx.config)
                    self._tasks[place, kind, number, sample] = ctx.underway.start(work)


def known_patterns(ctx: Context) -> Mapping[str, str]:
    """The taxonomy of failures that an env's author may give: `patterns = {name: what it means}`."""
    patterns: Mapping[str, str] = getattr(ctx.env, "patterns", {})
    return patterns


def _from_feedback(trajectories: list[Trajectory], patches: list[Patch], ctx: Context) -> list[Patch]:
    """Failures for which no analyst named a cause get the scorer's: its own words, without what only one item has."""
    named = {tid for patch in patches for pattern in patch.patterns for tid in pattern.trajectory_ids}
    causes: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        if trajectory.score.hard < 1 and trajectory.id not in named and (cause := feedback_cause(trajectory)):
            causes.setdefault(cause, []).append(trajectory)
    if not causes:
        return []
    patterns = tuple(
        Pattern(name=cause, cause=group[0].score.feedback[:200], trajectory_ids=tuple(t.id for t in group))
        for cause, group in sorted(causes.items())
    )
    ids = tuple(tid for pattern in patterns for tid in pattern.trajectory_ids)
    return [Patch(id=f"{ctx.step:04d}-feedback", source="scorer/feedback", trajectory_ids=ids, patterns=patterns)]


def feedback_cause(trajectory: Trajectory) -> str:
    """The scorer's feedback as a short name: the first line without quotations and numbers; empty if it says little."""
    first = next(iter(trajectory.score.feedback.strip().splitlines()), "")
    words = normal_name(_QUOTED.sub(" ", first)).split()
    return " ".join(words[:10]) if len(words) >= 3 else ""


def _deep_minibatches(trajectories: list[Trajectory], patches: list[Patch], ctx: Context) -> list[Minibatch]:
    """One for each cause that more than the threshold's share of failures has: all of its trajectories, and passes."""
    failures = {t.id for t in trajectories if t.score.hard < 1}
    causes = shared_causes(patches, failures)
    least = max(1, ctx.config.gradient.deep_reflect_threshold * len(failures))
    passes = [t for t in trajectories if t.score.hard >= 1][: ctx.config.gradient.minibatch_size]
    return [
        Minibatch(
            id=f"{ctx.step:04d}-deep-{number:02d}",
            kind="deep",
            pattern=name,
            trajectories=[t for t in trajectories if t.id in causes[name]] + passes,
        )
        for number, name in enumerate(name for name, ids in sorted(causes.items()) if len(ids) > least)
    ]


def shared_causes(patches: Sequence[Patch], failures: set[str]) -> dict[str, set[str]]:
    """Which failures have which cause; two names that say the same are one."""
    causes: dict[str, set[str]] = {}
    for patch in patches:
        for pattern in patch.patterns:
            shown = failures & set(pattern.trajectory_ids)
            name = normal_name(pattern.name)
            home = next((known for known in causes if known == name or same_meaning(known, name)), name)
            if shown and name:
                causes.setdefault(home, set()).update(shown)
    return causes


def _usable(patch: Patch, number: int, skill: Skill, trajectories: list[Trajectory], ctx: Context) -> Patch:
    """Number the edits, and drop those that could never be applied, so that they take no other's place."""
    kept: list[Edit] = []
    dropped = list(patch.dropped)
    for place, edit in enumerate(patch.edits):
        named = edit.model_copy(update={"id": f"{ctx.step:04d}-{number:02d}-{place:02d}"})
        skips = apply_within_limits(skill, [named], ctx).skipped
        if skips:
            dropped.append(Dropped(kind=skips[0].kind, reason=skips[0].reason, edit=named.model_dump(mode="json")))
        elif said := paraphrased(named, skill):
            reason = f"only says in other words what stands there: {said[:100]}"
            dropped.append(Dropped(kind="paraphrase", reason=reason, edit=named.model_dump(mode="json")))
        else:
            kept.append(named)
    leaks = find_leaks(kept, trajectories, skill)
    return patch.model_copy(update={"edits": tuple(kept), "dropped": tuple(dropped), "leaks": leaks})


def paraphrased(edit: Edit, skill: Skill) -> str:
    """The text that an edit would only rephrase; empty if it says something of its own. Verbatim text stays."""
    if edit.op == "delete":
        return ""
    lines = [edit.anchor] if edit.op == "modify" else [line for line in skill.text.splitlines() if line.strip()]
    return next((line for line in lines if same_meaning(line, edit.text)), "")
