"""The scores at the end of a training: the test split, fresh samples of the best skill, and the baselines."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from skillopt.models.call import gather_all
from skillopt.record.base import ByRole
from skillopt.record.costs import Paid, bill
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.results import MajorityScore, ScoreWithInterval
from skillopt.record.run import Run
from skillopt.record.state import State
from skillopt.record.step import acceptance_rate
from skillopt.record.summary import (
    Baselines,
    BestScores,
    ConstantScores,
    EditTotals,
    Gain,
    Gains,
    GateTotals,
    InitialScores,
    MajorityScores,
    NoSkillScores,
    Summary,
)
from skillopt.skill import Skill
from skillopt.statistics import gain_interval, interval, wilson
from skillopt.tasks.base import Env, Item, Score, ScorerError, closed_set, is_judged, is_noisy, score_output
from skillopt.tasks.data import shown_names
from skillopt.training.context import Context
from skillopt.training.initial import initial_kind, needs_baseline
from skillopt.training.judging import standing_of
from skillopt.training.rollout import Measured, require_few

Evaluate = Callable[[str, str, Skill], Awaitable[Measured]]
"""A function that measures a skill; its arguments are the split, the measurement's name and the skill."""


@dataclass
class FinalScores:
    """The measurements at the end of a run; empty until then."""

    measured: dict[str, Measured] = field(default_factory=dict)
    """Measurements by split and name: `test_initial`, `test_best`, `val_remeasured`, `test_no_skill`."""
    majority: dict[str, MajorityScore] = field(default_factory=dict)
    """By split, the score if every task gets the most frequent answer."""
    do_nothing: dict[str, ScoreWithInterval] = field(default_factory=dict)
    """By split, the score of a target that does nothing."""

    def score(self, name: str) -> float | None:
        return self.measured[name].score if name in self.measured else None

    def interval(self, name: str) -> tuple[float, float] | None:
        if name not in self.measured:
            return None
        return interval(list(self.measured[name].values.values()))

    def summary(self, state: State, ctx: Context, paid: ByRole[Paid]) -> Summary:
        """The run's summary; figures that are not known yet are None."""
        initial, best = ctx.run.read_skill(0), ctx.run.read_skill(state.best.version)
        metric, kind = ctx.config.evaluation.metric, initial_kind(ctx.config.train.init_skill, initial)
        gains = self.gains(state, ctx.run, metric)
        telemetry = state.telemetry
        summary = Summary(
            status=state.status,
            stop_reason=state.stop_reason,
            benchmark=ctx.env.name,
            seed=ctx.config.train.seed,
            initial=self.initial(state, ctx.run, metric, initial.tokens, kind),
            best=self.best(state, metric, best.tokens),
            baselines=self.baselines(),
            **dict(bill(paid, telemetry.from_journal)),
            seconds_by_stage={stage: round(s, 2) for stage, s in sorted(telemetry.stages.items())},
            rollouts_to_best=telemetry.rollouts_to_best,
            edit_acceptance_rate=acceptance_rate(state.edits_accepted, state.edits_proposed),
            edits=EditTotals(proposed=state.edits_proposed, accepted=state.edits_accepted),
            persistent_failures=Run(ctx.run).persistent_failures if state.status != "running" else (),
            set_aside=dict(state.set_aside),
            steps=state.counts.model_copy(),
            gate=GateTotals(calls_saved=telemetry.gate_calls_saved),
            seconds=round(telemetry.seconds, 2),
            gain=gains,
            phases=tuple(state.phases),
            judge=standing_of(ctx.config) if is_judged(ctx.env) else None,
        )
        stuck = set(summary.persistent_failures)
        names = shown_names(item for split in ("train", "val") if stuck for item in ctx.env.items(split))
        shown = {item: name for item, name in names.items() if item in stuck}
        return summary.model_copy(update={"item_names": shown})

    def gains(self, state: State, run: RunDirectory, metric: str) -> Gains:
        """By split, how much higher the best skill scores than the initial skill on the same tasks. If there are fresh
        samples of the best skill, they are used."""
        before = _initial_values(run, metric)
        again = self.measured.get("val_remeasured")
        val, test = paired(before, again.values if again else state.val, "val"), None
        if val and not again:
            now = state.best.val
            val = None if now is None else val.model_copy(update={"before": state.initial_val, "after": now})
        if "test_best" in self.measured:
            test = paired(self.measured["test_initial"].values, self.measured["test_best"].values)
        return Gains(val=val, test=test)

    def initial(self, state: State, run: RunDirectory, metric: str, tokens: int, kind: str) -> InitialScores:
        values = list(_initial_values(run, metric).values())
        return InitialScores(
            val=state.initial_val if values else None,
            val_interval=interval(values),
            test=self.score("test_initial"),
            test_interval=self.interval("test_initial"),
            tokens=tokens,
            kind=kind,
        )

    def best(self, state: State, metric: str, tokens: int) -> BestScores:
        """The best skill's scores, from the gate and from fresh samples. The difference between the two is the winner's
        curse."""
        again = self.score("val_remeasured")
        return BestScores(
            val=state.best.val if state.val else None,
            val_interval=_best_interval(state, metric),
            val_remeasured=again,
            val_remeasured_interval=self.interval("val_remeasured"),
            winners_curse=None if again is None or state.best.val is None else state.best.val - again,
            test=self.score("test_best"),
            test_interval=self.interval("test_best"),
            step=state.best.step,
            version=state.best.version,
            tokens=tokens,
        )

    def baselines(self) -> Baselines:
        empty = None
        if "test_no_skill" in self.measured:
            test = self.interval("test_no_skill")
            empty = NoSkillScores(test=self.score("test_no_skill"), test_interval=test, tokens=0)
        always = None
        if self.majority:
            always = MajorityScores(answer=self.majority["val"].answer, **_by_split(self.majority))
        idle = ConstantScores(**_by_split(self.do_nothing)) if self.do_nothing else None
        return Baselines(no_skill=empty, majority=always, do_nothing=idle)


def _by_split(scores: Mapping[str, ScoreWithInterval]) -> dict[str, Any]:
    values = {split: row.score for split, row in scores.items()}
    return values | {f"{split}_interval": row.interval for split, row in scores.items()}


def paired(before: Mapping[str, float], after: Mapping[str, float], split: str = "test") -> Gain | None:
    """The gain on the tasks that both skills did; None if there are no such tasks."""
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    return Gain(
        before=fmean(before[item] for item in shared),
        after=fmean(after[item] for item in shared),
        tasks=len(shared),
        split=split,
        interval=gain_interval([after[item] - before[item] for item in shared]),
    )


def scores_of(run: RunDirectory, name: str, metric: str) -> dict[str, float]:
    """The scores of a run's measurement, by item; empty if the run has no measurement of this name."""
    path = run.evaluations / f"{name}.json"
    rows = read_json(path)["items"] if path.exists() else {}
    return {item: Score(**row).value(metric) for item, row in rows.items()}


def _initial_values(run: RunDirectory, metric: str) -> dict[str, float]:
    """The initial skill's validation scores; empty until they are measured."""
    return scores_of(run, "val_initial", metric)


def _best_interval(state: State, metric: str) -> tuple[float, float] | None:
    """The interval of the best skill's validation score. With the paired gate, the score of an item is a mean of
    samples, so the number of solved items may be a fraction."""
    if state.best.val is None:
        return None
    if metric == "hard" and state.val:
        return wilson(state.best.val * len(state.val), len(state.val))
    return interval(list(state.val.values()))


async def measure_finals(state: State, ctx: Context, evaluate: Evaluate) -> FinalScores:
    """If `evaluation.test` is true, measure the initial, the best and the empty skill on the test split. A training
    reads the test split only here.

    The best skill was chosen because its validation score is the highest of many, so luck has raised this score. If the
    target or the scorer is noisy, the score is measured again with fresh samples.
    """
    finals, evaluation = FinalScores(), ctx.config.evaluation
    splits = ("val", "test") if evaluation.test else ("val",)
    initial, best = ctx.run.read_skill(0), ctx.run.read_skill(state.best.version)
    won = best.hash != initial.hash
    wanted = [("val", "remeasured", best)] if ctx.noisy and won else []
    if evaluation.test:
        wanted += [("test", "initial", initial)]
        wanted += [("test", "best", best)] if won else []
        wanted += [("test", "no_skill", Skill(""))] if evaluation.baselines and needs_baseline(initial) else []
    if evaluation.baselines:
        for split in splits:
            always = await majority(ctx.env, split, evaluation.metric)
            finals.majority |= {split: always} if always else {}
            idle = await do_nothing(ctx.env, split, evaluation.metric)
            finals.do_nothing |= {split: idle} if idle else {}
    measured = await gather_all(evaluate(*one) for one in wanted)
    for split in splits:  # each measurement counted only its own refused items; together they may be too many
        ids = [item.id for item in ctx.env.items(split)]
        require_few({i: state.set_aside[i] for i in ids if i in state.set_aside}, len(ids))
    for found in measured:  # an item that was set aside in one measurement is left out of all
        found.values = {item: value for item, value in found.values.items() if item not in state.set_aside}
    finals.measured = {f"{split}_{name}": m for (split, name, _), m in zip(wanted, measured, strict=True)}
    if evaluation.test:
        finals.measured.setdefault("test_best", finals.measured["test_initial"])
    return finals


async def majority(env: Env, split: str, metric: str) -> MajorityScore | None:
    """The score if every task gets the most frequent answer of the training split; None if the answers are not a small
    closed set."""
    train = env.items("train")
    if not closed_set(train):
        return None
    counts = Counter(item.answers[0] for item in train)
    answer = min(counts, key=lambda name: (-counts[name], name))
    values = await _values(env, split, metric, lambda item: answer)
    if not values:
        return None
    return MajorityScore(answer=answer, score=sum(values) / len(values), interval=interval(values))


async def do_nothing(env: Env, split: str, metric: str) -> ScoreWithInterval | None:
    """The score of a target that does nothing: an empty reply, or the env's `Env.baseline`."""
    values = await _values(env, split, metric, env.baseline)
    return ScoreWithInterval(score=sum(values) / len(values), interval=interval(values)) if values else None


async def _values(env: Env, split: str, metric: str, output: Callable[[Item], str]) -> list[float]:
    """Score the output that `output` returns for each item. Items that cannot be scored are left out. If scores are
    noisy, return an empty list."""
    if is_noisy(env):
        return []
    found = []
    for item in env.items(split):
        with contextlib.suppress(ScorerError):
            found.append((await score_output(env, item, output(item))).value(metric))
    return found
