"""Makes the result of a check: verdict, scores, the cost of each side, and the items that changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from skillopt.config import Config, Price
from skillopt.measure.sequential import EPSILON, Trial
from skillopt.measure.usage import RolloutUsage
from skillopt.measure.verdict import counted
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.record.results import (
    BothScores,
    BothTakes,
    ChangedItem,
    ChangedSide,
    CheckedSkill,
    CheckResult,
    CheckRollouts,
    CheckTelemetry,
    CheckWord,
    ScoreWithInterval,
    SideTakes,
    Spent,
    TaskSeconds,
)
from skillopt.record.source import Source
from skillopt.skill import Skill
from skillopt.statistics import gain_interval, interval
from skillopt.tasks.base import Env, Trajectory

SIDES = ("base", "skill")
MARGIN = 0.05
"""The default margin: how much lower a skill may score and still be no worse."""
EXIT = {"better": 0, "no worse": 0, "worse": 1, "cannot tell": 4}


@dataclass(frozen=True, kw_only=True)
class SkillVersion:
    """A skill to measure, its path, and its version in words."""

    skill: Skill
    path: str
    """The path of the skill; empty for no skill, and for a skill that is not in a file."""
    where: str
    """The version in words: `the working tree`, `origin/main (1a2b3c4)`, `no skill` or `best`."""

    @classmethod
    def of(cls, source: Source) -> SkillVersion:
        return cls(skill=source.skill, path=source.path, where=source.where)


@dataclass(frozen=True, kw_only=True)
class Question:
    """The question of a check or comparison: the two skills, the items and the margin."""

    skill: SkillVersion
    base: SkillVersion
    margin: float = MARGIN
    split: str = "val"
    only: tuple[str, ...] = ()
    """The ids of the items to measure; empty for all items."""
    max_items: int | None = None
    repeats: int | None = None
    """How often both skills do every item in a comparison; None for a check, which may end early."""

    @property
    def same_text(self) -> bool:
        return self.skill.skill.hash == self.base.skill.hash


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One rollout with one of the two skills, and the rollout's tokens and seconds."""

    side: str
    trajectory: Trajectory
    usage: RolloutUsage


def check_result(
    config: Config,
    env: Env,
    question: Question,
    trial: Trial,
    word: CheckWord,
    samples: Sequence[Sample],
    refused: Mapping[str, Mapping[str, str]],
    spent: Spent,
) -> CheckResult:
    """Make the result of a check. Items that the endpoint refused for either skill are ignored."""
    measured, metric = set(trial.measured), config.evaluation.metric
    counting = [sample for sample in samples if sample.trajectory.item_id in measured]
    means = {side: means_of(counting, side, metric) for side in SIDES}
    differences = [means["skill"][item] - means["base"][item] for item in trial.measured]
    result = CheckResult(
        verdict=word,
        benchmark=env.name,
        target=config.models.target_model,
        split=question.split,
        metric=metric,
        margin=question.margin,
        alpha=config.evaluation.alpha,
        noisy=trial.noisy,
        skill=_about(question.skill),
        base=_about(question.base),
        same_text=question.same_text,
        items=len(trial.order),
        measured=len(measured),
        repeats=trial.repeats,
        sure_by=trial.sure_by,
        rollouts=CheckRollouts(asked=len(samples), full_pass=2 * len(trial.order)),
        p=trial.p,
        difference=fmean(differences) if differences else 0.0,
        difference_interval=gain_interval(differences),
        scores=BothScores(base=_score(means["base"]), skill=_score(means["skill"])),
        takes=BothTakes(
            base=_takes(counting, "base", config, len(refused["base"])),
            skill=_takes(counting, "skill", config, len(refused["skill"])),
        ),
        changed=_changed(counting, trial, metric),
        set_aside={**refused["base"], **refused["skill"]},
        items_needed=items_needed(trial) if word == "cannot tell" and trial.noisy else None,
        says="",
        exit_code=EXIT[word],
        telemetry=CheckTelemetry(paid=spent),
    )
    return result.model_copy(update={"says": sentence(result)})


def sentence(result: CheckResult) -> str:
    """The verdict of a check in plain words."""
    against = result.base.where if result.base.where == "no skill" else f"the base ({result.base.where})"
    if result.same_text:
        return f"No worse: the text is the same as in {against}, so nothing was measured."
    low, high = result.difference_interval or (0.0, 0.0)
    figures = (
        f"{result.scores.skill.score:.2f} on {result.measured} of {counted(result.items, result.split)} against "
        f"{result.scores.base.score:.2f} (95 % interval of the gain: {low:+.2f} to {high:+.2f})"
    )
    margin = f"the margin of {result.margin:g}"
    if result.verdict == "better":
        return f"Better than {against}: {figures}."
    if result.verdict == "no worse":
        return f"No worse than {against}, within {margin}: {figures}."
    if result.verdict == "worse":
        return f"Worse than {against}, by more than {margin}: {figures}."
    if not result.noisy:
        return (
            f"Cannot tell whether the skill is worse than {against}: {figures}, but items changed in both directions. "
            "Any new wording can have this effect by chance. Measure more items."
        )
    need = result.items_needed
    more = f" About {need} items would be enough, if both skills are equally good." if need else ""
    return (
        f"Cannot tell with {result.items} items whether the skill is worse than {against} by more than {margin}: "
        f"{figures}, and the target is noisy.{more} A larger margin or a larger evaluation.max_repeats also helps."
    )


def items_needed(trial: Trial) -> int | None:
    """The approximate number of items that would show "no worse" for two equal skills, at the measured noise; None if
    no number of items would."""
    rounds = max(1, min((len(trial.pairs[item]) for item in trial.measured), default=1))
    if not trial.margin or not trial.measured:
        return None
    _, error = trial.estimate(rounds)
    spread = error * error * len(trial.measured) * rounds
    looks = trial.max_repeats + 1
    return max(len(trial.order) + 1, math.ceil(spread * ((trial.quantile + 1) / trial.margin) ** 2 / looks))


def _about(version: SkillVersion) -> CheckedSkill:
    skill = version.skill
    return CheckedSkill(path=version.path, where=version.where, hash=skill.hash, tokens=skill.tokens)


def means_of(samples: Sequence[Sample], side: str, metric: str) -> dict[str, float]:
    """The mean score of each item over its samples with one of the two skills (`side`)."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        if sample.side == side:
            values.setdefault(sample.trajectory.item_id, []).append(sample.trajectory.score.value(metric))
    return {item: fmean(each) for item, each in values.items()}


def _score(means: Mapping[str, float]) -> ScoreWithInterval:
    values = list(means.values())
    return ScoreWithInterval(score=_mean(values), interval=interval(values))


def _takes(samples: Sequence[Sample], side: str, config: Config, refused: int) -> SideTakes:
    """The mean costs of one task with one of the two skills; dollars are None if the price is unknown."""
    rollouts = [sample for sample in samples if sample.side == side]
    price = price_of(config.models.target_model, config.budget.prices)
    costs = [_cost(sample.usage, price) for sample in rollouts]
    priced = [cost for cost in costs if cost is not None]
    return SideTakes(
        rollouts=len(rollouts),
        prompt_tokens=_mean([sample.usage.prompt for sample in rollouts]),
        completion_tokens=_mean([sample.usage.completion for sample in rollouts]),
        usd=_mean(priced) if len(priced) == len(costs) and (price or priced) else None,
        turns=_mean([sum(m.get("role") == "assistant" for m in s.trajectory.messages) for s in rollouts]),
        telemetry=TaskSeconds(seconds=_mean([sample.usage.seconds for sample in rollouts])),
        refused=refused,
    )


def _cost(usage: RolloutUsage, price: Price | None) -> float | None:
    if usage.usd is not None:
        return usage.usd
    tokens = Usage(prompt=usage.prompt, completion=usage.completion, cached=usage.cached, written=usage.written)
    return cost_of(tokens, price)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _changed(samples: Sequence[Sample], trial: Trial, metric: str) -> tuple[ChangedItem, ...]:
    """The items on which the two skills differ, the largest losses first. Each item has one sample of each skill: the
    samples that show the difference best."""
    means = {side: means_of(samples, side, metric) for side in SIDES}
    least = 0.5 if metric == "hard" else EPSILON
    changed = []
    for item in trial.measured:
        difference = means["skill"][item] - means["base"][item]
        if abs(difference) < least:
            continue
        base, skill = (
            _clearest([s for s in samples if s.side == side and s.trajectory.item_id == item], high, metric)
            for side, high in (("base", difference < 0), ("skill", difference > 0))
        )
        changed.append(
            ChangedItem(
                item_id=item,
                type=skill.type,
                change="improved" if difference > 0 else "regressed",
                difference=difference,
                samples=len(trial.pairs[item]),
                input=skill.input,
                base=ChangedSide(score=means["base"][item], output=base.output, feedback=base.score.feedback),
                skill=ChangedSide(score=means["skill"][item], output=skill.output, feedback=skill.score.feedback),
            )
        )
    return tuple(sorted(changed, key=lambda row: (row.difference, row.item_id)))


def _clearest(samples: Sequence[Sample], high: bool, metric: str) -> Trajectory:
    ordered = sorted(samples, key=lambda sample: sample.trajectory.score.value(metric))
    return ordered[-1 if high else 0].trajectory
