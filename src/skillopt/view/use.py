"""A skill in use: the cost of a call with each version, and held-out answers under the initial and the best skill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillopt.models.prices import price_of
from skillopt.record.run import Run
from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.record.trajectory import Trajectory
from skillopt.training.use import TaskUse, use_of
from skillopt.view.curves import curves

_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class VersionUse:
    version: int
    score: float
    """The version's score on the validation tasks, as its gate measured it."""
    use: TaskUse


@dataclass(frozen=True, kw_only=True)
class HeldOutAnswer:
    """The trajectories of one held-out task under the initial and under the best skill."""

    before: Trajectory
    after: Trajectory


@dataclass(frozen=True, kw_only=True)
class SkillInUse:
    versions: tuple[VersionUse, ...] = ()
    initial: TaskUse | None = None
    """The cost of a task with the initial skill, from the held-out tasks; None if these were not measured."""
    best: TaskUse | None = None
    answers: tuple[HeldOutAnswer, ...] = ()


def skill_in_use(run: Run, summary: Summary, history: Sequence[StepRecord]) -> SkillInUse:
    """The costs and the example answers of a run, read from its trajectories."""
    config = run.config
    price = price_of(config.models.target_model, config.budget.prices)
    test = {name: _kept(run, f"test_{name}") for name in ("initial", "best")}
    test["best"] = test["best"] or test["initial"]  # if no edit was accepted
    return SkillInUse(
        versions=tuple(versions_in_use(run, summary, history)),
        initial=use_of(test["initial"], price),
        best=use_of(test["best"], price),
        answers=_answers(test["initial"], test["best"], config.evaluation.metric),
    )


def _kept(run: Run, name: str) -> list[Trajectory]:
    return list(run.scored(run.files.evaluations / f"{name}.jsonl"))


def _scores(summary: Summary, history: Sequence[StepRecord]) -> dict[int, float]:
    """Each version's validation score."""
    scores = {0: summary.initial.val} if summary.initial.val is not None else {}
    marks = curves(history, summary, {}).marks
    return scores | {mark.version: mark.score for mark in marks if mark.kind in {"accept", "guidance"}}


def versions_in_use(run: Run, summary: Summary, history: Sequence[StepRecord]) -> list[VersionUse]:
    """Each version with a validation score, and its cost on the validation tasks."""
    price = price_of(run.config.models.target_model, run.config.budget.prices)
    files, versions, scores = run.files, run.versions_by_hash, _scores(summary, history)
    kept: dict[int, list[Trajectory]] = {0: _kept(run, "val_initial")}
    for path in sorted(files.root.glob("s*/*/gate_trajectories.jsonl")):  # steps and slow updates
        for each in run.scored(path):
            if version := versions.get(each.skill_hash):
                kept.setdefault(version, []).append(each)
    uses = {version: use_of(rows, price) for version, rows in kept.items()}
    return [
        VersionUse(version=version, score=scores[version], use=use)
        for version, use in sorted(uses.items())
        if use and use.tokens and version in scores
    ]


def _answers(before: Sequence[Trajectory], after: Sequence[Trajectory], metric: str) -> tuple[HeldOutAnswer, ...]:
    """The example answers, in this order: the first task that got better, the first task that got worse, then other
    tasks."""
    now = {each.item_id: each for each in after}
    pairs = [HeldOutAnswer(before=old, after=now[old.item_id]) for old in before if old.item_id in now]
    change = [pair.after.score.value(metric) - pair.before.score.value(metric) for pair in pairs]
    better, worse = (next((n for n, value in enumerate(change) if sign * value > 1e-9), None) for sign in (1, -1))
    chosen = [n for n in (better, worse) if n is not None]
    chosen += [n for n in range(len(pairs)) if n not in chosen]
    return tuple(pairs[n] for n in chosen[:_SHOWN])
