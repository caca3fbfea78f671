"""What a check found, as plain values: verdict, scores, what each side takes, and the items that changed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from skillopt.config import Config
from skillopt.envs.base import Env, Trajectory
from skillopt.measure.meter import Reading
from skillopt.measure.sequential import EPSILON, Trial, Word
from skillopt.measure.verdict import counted
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.run.source import Source
from skillopt.statistics import gain_interval, interval

SIDES = ("base", "skill")
MARGIN = 0.05
"""How much lower a skill may score and still be no worse, unless the user says otherwise."""
_DECLINED = re.compile(
    r"\b(?:I['’]?m |I am )?sorry\b.{0,40}\b(?:can['’]?t|cannot|unable|not able)\b"
    r"|\bI (?:can['’]?t|cannot|won['’]?t|will not|am unable to) (?:assist|help|comply|fulfil|provide|do that)\b",
    re.IGNORECASE,
)
"""How targets say, in English, that they will not do a task."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a skill."""

    skill: Source
    base: Source
    margin: float = MARGIN
    split: str = "val"
    max_items: int | None = None
    watch: bool = False
    """Fresh samples, whatever earlier checks paid for: the endpoint may have changed."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One rollout of one side, and what it took."""

    side: str
    trajectory: Trajectory
    reading: Reading


def checked(
    config: Config,
    env: Env,
    question: Question,
    trial: Trial,
    word: Word,
    samples: Sequence[Sample],
    refused: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """The result without what was paid. Items that the endpoint refused for either side count for neither."""
    kept = set(trial.measured)
    own = [sample for sample in samples if sample.trajectory.item_id in kept]
    means = {side: _means(own, side, config.evaluation.metric) for side in SIDES}
    differences = [means["skill"][item] - means["base"][item] for item in trial.measured]
    result = {
        "verdict": word,
        "benchmark": env.name,
        "target": config.models.target_model,
        "split": question.split,
        "metric": config.evaluation.metric,
        "margin": question.margin,
        "alpha": config.evaluation.alpha,
        "noisy": trial.noisy,
        "skill": _about(question.skill),
        "base": _about(question.base),
        "same_text": question.skill.skill.hash == question.base.skill.hash,
        "items": len(trial.order),
        "measured": len(kept),
        "repeats": trial.repeats,
        "sure_by": trial.sure_by,
        "rollouts": {"asked": len(samples), "full_pass": 2 * len(trial.order)},
        "p": trial.p,
        "difference": fmean(differences) if differences else 0.0,
        "difference_interval": gain_interval(differences),
        "scores": {side: _score(list(means[side].values())) for side in SIDES},
        "takes": {side: _takes(own, side, config) | {"refused": len(refused[side])} for side in SIDES},
        "by_type": _by_type(own, config),
        "changed": _changed(own, trial, config.evaluation.metric),
        "set_aside": {**refused["base"], **refused["skill"]},
        "items_needed": items_needed(trial) if word == "cannot tell" and trial.noisy else None,
    }
    return {**result, "says": says(result)}


def says(result: Mapping[str, Any]) -> str:
    """The verdict in plain words."""
    against = "no skill" if not result["base"]["path"] else f"the base ({result['base']['where']})"
    if result["same_text"]:
        return f"No worse: the text is the same as that of {against}, so that nothing was measured."
    scores = result["scores"]
    low, high = result["difference_interval"]
    on = f"on {result['measured']} of {counted(result['items'], result['split'])}"
    figures = (
        f"{scores['skill']['score']:.2f} {on} against {scores['base']['score']:.2f} "
        f"(95 % interval of the gain: {low:+.2f} to {high:+.2f})"
    )
    margin = f"the margin of {result['margin']:g}"
    if result["verdict"] == "better":
        return f"Better than {against}: {figures}."
    if result["verdict"] == "no worse":
        return f"No worse than {against}, within {margin}: {figures}."
    if result["verdict"] == "worse":
        return f"Worse than {against}, by more than {margin}: {figures}."
    if not result["noisy"]:
        return (
            f"Cannot tell whether it is worse than {against}: {figures}, but items changed in both directions, as they "
            "do by chance when words change. More items would tell."
        )
    need = result["items_needed"]
    more = f" About {need} items would be enough, if the two are equal." if need else ""
    return (
        f"Cannot tell with {result['items']} items whether it is worse than {against} by more than {margin}: "
        f"{figures}, and the target is noisy.{more} A larger margin or evaluation.max_repeats helps as well."
    )


def items_needed(trial: Trial) -> int | None:
    """About how many items would show that two equal skills are no worse, at the noise seen; None for any number."""
    rounds = max(1, min((len(trial.pairs[item]) for item in trial.measured), default=1))
    if not trial.margin or not trial.measured:
        return None
    _, error = trial.estimate(rounds)
    spread = error * error * len(trial.measured) * rounds
    looks = trial.max_repeats + 1
    return max(len(trial.order) + 1, math.ceil(spread * ((trial.quantile + 1) / trial.margin) ** 2 / looks))


def _about(source: Source) -> dict[str, Any]:
    skill = source.skill
    return {"path": source.path, "where": source.where, "hash": skill.hash, "tokens": skill.tokens}


def _means(samples: Sequence[Sample], side: str, metric: str) -> dict[str, float]:
    """By item, over its samples."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        if sample.side == side:
            values.setdefault(sample.trajectory.item_id, []).append(sample.trajectory.score.value(metric))
    return {item: fmean(own) for item, own in values.items()}


def _score(values: Sequence[float]) -> dict[str, Any]:
    return {"score": fmean(values) if values else 0.0, "interval": interval(values)}


def _takes(samples: Sequence[Sample], side: str, config: Config) -> dict[str, Any]:
    """Means of one task on one side; dollars are None where the price is unknown."""
    own = [sample for sample in samples if sample.side == side]
    price = price_of(config.models.target_model, config.budget.prices)
    usage = [Usage(prompt=s.reading.prompt, completion=s.reading.completion, cached=s.reading.cached) for s in own]
    told = [s.reading.usd for s in own]
    costs = [cost_of(used, price) if usd is None else usd for used, usd in zip(usage, told, strict=True)]
    known = [cost for cost in costs if cost is not None]
    return {
        "rollouts": len(own),
        "prompt_tokens": _mean([used.prompt for used in usage]),
        "completion_tokens": _mean([used.completion for used in usage]),
        "usd": _mean(known) if len(known) == len(costs) and (price or known) else None,
        "declined": _mean([bool(_DECLINED.search(s.trajectory.output[:400])) for s in own]),
        "turns": _mean([sum(m.get("role") == "assistant" for m in s.trajectory.messages) for s in own]),
        "telemetry": {"seconds": _mean([s.reading.seconds for s in own])},
    }


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _by_type(samples: Sequence[Sample], config: Config) -> dict[str, Any]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.trajectory.type, []).append(sample)
    found = {}
    for name, own in sorted(groups.items()):
        means = {side: _means(own, side, config.evaluation.metric) for side in SIDES}
        found[name] = {
            "items": len(means["skill"]),
            **{side: _score(list(means[side].values()))["score"] for side in SIDES},
            "takes": {side: _takes(own, side, config) for side in SIDES},
        }
    return found


def _changed(samples: Sequence[Sample], trial: Trial, metric: str) -> list[dict[str, Any]]:
    """The items on which the two differ, losses first; each side by the sample that shows it most clearly."""
    means = {side: _means(samples, side, metric) for side in SIDES}
    least = 0.5 if metric == "hard" else EPSILON
    found = []
    for item in trial.measured:
        difference = means["skill"][item] - means["base"][item]
        if abs(difference) < least:
            continue
        shown = {
            side: _clearest([s for s in samples if s.side == side and s.trajectory.item_id == item], high, metric)
            for side, high in (("base", difference < 0), ("skill", difference > 0))
        }
        found.append(
            {
                "item_id": item,
                "type": shown["skill"].type,
                "change": "improved" if difference > 0 else "regressed",
                "difference": difference,
                "samples": len(trial.pairs[item]),
                "input": shown["skill"].input,
                **{
                    side: {"score": means[side][item], "output": t.output, "feedback": t.score.feedback}
                    for side, t in shown.items()
                },
            }
        )
    return sorted(found, key=lambda row: (row["difference"], row["item_id"]))


def _clearest(samples: Sequence[Sample], high: bool, metric: str) -> Trajectory:
    ordered = sorted(samples, key=lambda sample: sample.trajectory.score.value(metric))
    return ordered[-1 if high else 0].trajectory
