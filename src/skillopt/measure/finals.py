"""The figures of a finished training: the sealed test split, the winner measured again, the baselines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from skillopt.core.context import Context
from skillopt.core.initial import initial_kind, needs_baseline
from skillopt.core.rollout import require_few
from skillopt.core.split import Measured
from skillopt.envs.data import shown_names
from skillopt.measure.baselines import do_nothing, majority
from skillopt.measure.course import scores_of, training_verdict
from skillopt.measure.verdict import Gain, paired
from skillopt.models.call import gather_all
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.state import State
from skillopt.run.summary import summarise
from skillopt.skill import Skill
from skillopt.statistics import interval, wilson

Evaluate = Callable[[str, str, Skill], Awaitable[Measured]]
"""Measures a skill on a split under a name."""


@dataclass
class Finals:
    """What was measured at the end; empty before."""

    measured: dict[str, Measured] = field(default_factory=dict)
    """By split and name: test_initial, test_best, val_remeasured, test_no_skill."""
    majority: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By split."""
    do_nothing: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By split."""

    def score(self, name: str) -> float | None:
        return self.measured[name].score if name in self.measured else None

    def interval(self, name: str) -> tuple[float, float] | None:
        if name not in self.measured:
            return None
        return interval(list(self.measured[name].values.values()))

    def summary(self, state: State, ctx: Context, paid: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """The run's figures as far as they are known."""
        initial, best = ctx.run.read_skill(0), ctx.run.read_skill(state.best.version)
        metric, kind = ctx.config.evaluation.metric, initial_kind(ctx.config.train.init_skill, initial)
        chosen = {"step": state.best.step, "version": state.best.version, "tokens": best.tokens}
        gains = self.gains(state, ctx.run, metric)
        summary = summarise(
            ctx.run,
            state,
            benchmark=ctx.env.name,
            seed=ctx.config.train.seed,
            paid=paid,
            initial={**self.initial(state, ctx.run, metric), "tokens": initial.tokens, "kind": kind},
            best={**self.best(state, metric), **chosen},
            baselines=self.baselines(),
        )
        history = read_json(ctx.run.history) if state.status != "running" else []  # the reasons need the run's end
        verdict = training_verdict(summary, history, gains, ctx.config.flat())
        gain = {split: asdict(own) for split, own in gains.items()}
        stuck = set(summary["persistent_failures"])
        names = shown_names(item for split in ("train", "val") if stuck for item in ctx.env.items(split))
        known = {item: name for item, name in names.items() if item in stuck}
        return {"verdict": verdict.text, "outcome": verdict.word, **summary, "gain": gain, "item_names": known}

    def gains(self, state: State, run: RunDirectory, metric: str) -> dict[str, Gain]:
        """The best skill against the initial one on the same tasks, by split; validation by fresh samples if any."""
        before = _initial_values(run, metric)
        again = self.measured.get("val_remeasured")
        found = {"val": paired(before, again.values if again else state.val, "val")}
        if found["val"] and not again:
            found["val"] = replace(found["val"], before=state.initial_val, after=state.best.val)
        if "test_best" in self.measured:
            found["test"] = paired(self.measured["test_initial"].values, self.measured["test_best"].values)
        return {split: gain for split, gain in found.items() if gain}

    def initial(self, state: State, run: RunDirectory, metric: str) -> dict[str, Any]:
        values = list(_initial_values(run, metric).values())
        return {
            "val": state.initial_val if values else None,
            "val_interval": interval(values),
            "test": self.score("test_initial"),
            "test_interval": self.interval("test_initial"),
        }

    def best(self, state: State, metric: str) -> dict[str, Any]:
        """The score that the gate saw, and the score of fresh samples: the difference is the winner's curse."""
        again = self.score("val_remeasured")
        return {
            "val": state.best.val if state.val else None,
            "val_interval": _best_interval(state, metric),
            "val_remeasured": again,
            "val_remeasured_interval": self.interval("val_remeasured"),
            "winners_curse": None if again is None else state.best.val - again,
            "test": self.score("test_best"),
            "test_interval": self.interval("test_best"),
        }

    def baselines(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "test_no_skill" in self.measured:
            scores = {"test": self.score("test_no_skill"), "test_interval": self.interval("test_no_skill")}
            found["no_skill"] = {**scores, "tokens": 0}
        if self.majority:
            found["majority"] = {"answer": self.majority["val"]["answer"]}
            for split, row in self.majority.items():
                found["majority"] |= {split: row["score"], f"{split}_interval": row["interval"]}
        for split, row in self.do_nothing.items():
            found.setdefault("do_nothing", {}).update({split: row["score"], f"{split}_interval": row["interval"]})
        return found


def _initial_values(run: RunDirectory, metric: str) -> dict[str, float]:
    """Empty while it is not measured yet."""
    return scores_of(run, "val_initial", metric)


def _best_interval(state: State, metric: str) -> tuple[float, float] | None:
    """Around the score itself: what the paired gate knows of single items is a mean of several samples."""
    if metric == "hard" and state.val:
        return wilson(state.best.val * len(state.val), len(state.val))
    return interval(list(state.val.values()))


async def measure_finals(state: State, ctx: Context, evaluate: Evaluate) -> Finals:
    """The only reading of the test split in a training: the initial and the best skill, and the empty one.

    The best skill's validation score is the highest of many noisy ones, so that luck has a part in it; where the
    target or scorer is noisy it is measured once more.
    """
    finals = Finals()
    initial, best = ctx.run.read_skill(0), ctx.run.read_skill(state.best.version)
    won = best.hash != initial.hash
    wanted = [("val", "remeasured", best)] if ctx.noisy and won else []
    wanted += [("test", "initial", initial)]
    wanted += [("test", "best", best)] if won else []
    if ctx.config.evaluation.baselines:
        wanted += [("test", "no_skill", Skill(""))] if needs_baseline(initial) else []
        for split in ("val", "test"):
            always = await majority(ctx.env, split, ctx.config.evaluation.metric)
            finals.majority |= {split: always} if always else {}
            idle = await do_nothing(ctx.env, split, ctx.config.evaluation.metric)
            finals.do_nothing |= {split: idle} if idle else {}
    measured = await gather_all(evaluate(*one) for one in wanted)
    for split in ("val", "test"):  # each measurement has counted its own refusals; together they may be too many
        ids = [item.id for item in ctx.env.items(split)]
        require_few({i: state.set_aside[i] for i in ids if i in state.set_aside}, len(ids))
    for found in measured:  # what one of them set aside counts for none
        found.values = {item: value for item, value in found.values.items() if item not in state.set_aside}
    finals.measured = {f"{split}_{name}": m for (split, name, _), m in zip(wanted, measured, strict=True)}
    finals.measured.setdefault("test_best", finals.measured["test_initial"])
    return finals
