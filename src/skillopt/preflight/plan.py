"""What a run will take, before anything is spent: steps, calls by stage and role, tokens, money and time, as ranges.

The number of calls follows from the config and the data; how many of them a run needs within that range depends on what
it finds. Tokens, money and time are estimates on top, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skillopt import prompts
from skillopt.analysts import exemplar
from skillopt.analysts.exemplar import ExemplarAnalyst
from skillopt.config import Config
from skillopt.core.batches import plan_steps
from skillopt.core.initial import needs_baseline
from skillopt.core.schedule import scheduled_rate
from skillopt.envs.base import SPLITS, Env, Item, closed_set
from skillopt.gates import credit, heats
from skillopt.letters.case import LONGEST_OTHER, MOST_OTHERS, room_for_others
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.models.simulated import SimulatedModel
from skillopt.preflight.components import Parts, needs_optimizer, resolve
from skillopt.run.summary import ROLES
from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens

Range = tuple[float, float]

EDIT_TOKENS = {"llm": 200, "sim": 40}
"""An edit's length, for the estimate of how the skill grows: a lookup or examples; in the simulated world, a line."""
EXAMPLE_TOKENS = 12
"""What a worked example adds to its task: its form and the answer."""
REPLY_TOKENS = {"target": 256, "optimizer": 1500}
"""A long reply, for the estimate; a model with a reasoning effort may use its whole limit."""
TURN_TOKENS = 60
"""What one turn of a game adds to the prompts after it."""
SECONDS: dict[str, Range] = {"target": (0.5, 5.0), "optimizer": (3.0, 30.0)}
"""Seconds of one call, unless the user gives better figures."""
SECOND_LOOK = 4
"""Tasks that a rejected candidate does once more (loop/second_look.py)."""
LETTER_SECONDS: Range = (30.0, 600.0)
"""What a reader takes for one letter."""
DIFFERING, GATED, GROWN = 0.2, 0.7, 0.3
"""A usual run: the share of a split that a noisy gate samples again, of steps that have something to gate, and of the
prompts' growth."""
_SAMPLE = 100
"""Items of a split whose length is looked at."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The calls of one stage of one role."""

    role: str
    stage: str
    calls: tuple[int, int]
    phases: int
    """In how many goes the calls are made; the calls of one go run side by side."""
    prompt: Range
    """Prompt tokens of one call."""
    likely: int
    """Calls of a usual run."""


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What a role takes in a usual run, to two digits."""

    calls: int
    tokens: int
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Ranges, low to high. All but the steps are estimates."""

    steps: int
    epochs: int
    items: dict[str, int]
    lines: tuple[Line, ...]
    tokens: dict[str, tuple[int, int]]
    """Prompts and replies together, by role."""
    usd: dict[str, Range | None]
    """None where the price is unknown."""
    seconds: Range
    call_seconds: dict[str, Range]
    """What one call was taken to last."""
    widths: dict[str, int]
    likely: dict[str, Usual]
    """By role."""

    def calls(self, role: str) -> tuple[int, int]:
        own = [line.calls for line in self.lines if line.role == role]
        return sum(low for low, _ in own), sum(high for _, high in own)


def plan_run(
    config: Config,
    env: Env,
    skill: Skill,
    *,
    call_seconds: Mapping[str, Range] | None = None,
    parts: Parts | None = None,
) -> Plan:
    """The plan of a whole run from its beginning."""
    parts = parts or resolve(config)
    sizes = {split: len(env.items(split)) for split in SPLITS}
    epochs = plan_steps(env.items("train"), config.train)
    steps = [step for epoch in epochs for step in epoch]
    task = _mean(_item_tokens(env))
    batches = [step.size for step in steps]
    growth = _growth(config, parts, env.items("train"), skill, batches, task)
    lines = (
        *_over_turns(_target_lines(config, parts, skill, sizes, batches, growth, task), env),
        *_optimizer_lines(config, parts, batches, task, (skill.tokens, round(growth[-1]))),
    )
    lines = (*lines, *_judge_lines(config, lines, task))
    widths = {role: config.role(role).workers for role in ROLES}
    lasts = {role: (call_seconds or {}).get(role) or _call_seconds(config, role) for role in ROLES}
    usage = {role: _usage(config, role, [line for line in lines if line.role == role]) for role in ROLES}
    return Plan(
        steps=len(steps),
        epochs=len(epochs),
        items=sizes,
        lines=tuple(line for line in lines if line.calls[1]),
        tokens={role: tuple(u.prompt + u.completion for u in usage[role]) for role in ROLES},  # type: ignore[misc]
        usd={role: _dollars(config, role, usage[role]) for role in ROLES},
        seconds=_seconds(lines, widths, lasts),
        call_seconds=lasts,
        widths=widths,
        likely={role: _likely(config, role, env, [line for line in lines if line.role == role]) for role in ROLES},
    )


def _target_lines(
    config: Config,
    parts: Parts,
    skill: Skill,
    sizes: dict[str, int],
    batches: list[int],
    growth: list[float],
    task: float,
) -> Iterable[Line]:
    """A deterministic target is never asked the same twice, so that a skill that does not change costs nothing.

    Each stage has the skill at its own length: `growth` is the most that it may have before the first step and after
    each.
    """
    known, max_repeats = is_deterministic(config, "target"), config.evaluation.max_repeats
    least = sum(batches[:1])  # a run may end as soon as every validation task is right
    later = config.train.num_epochs - 1 if config.optimizer.use_slow_update else 0
    credited = len(batches) * config.evaluation.credit_gates
    gates = len(batches) + credited + later
    probes = credited * credit.MOST_BROKEN * min(credit.MOST_SUSPECTS, math.ceil(config.optimizer.learning_rate))
    compared = 2 * min(config.optimizer.slow_update_samples, sizes["train"])
    again = 0 if known else sizes["val"]  # the winner is measured again, since its score may be luck
    measured = (sizes["val"] + sizes["test"], sizes["val"] + again + 2 * sizes["test"])
    baseline = sizes["test"] if config.evaluation.baselines and needs_baseline(skill) else 0
    guessed = sum(batches) if config.train.speculate else 0
    least = min(least, *batches) if guessed else least
    begun, ended = sizes["val"] + sizes["test"], again + sizes["test"]
    finals = (begun * growth[0] + ended * growth[-1]) / (begun + ended)
    before, after = _mean(growth[:-1] or growth), _mean(growth[1:] or growth)
    usual = round(GATED * (len(batches) + later) * sizes["val"] * (1 if known else 1 + 2 * DIFFERING * max_repeats))
    raced = _race_calls(config, parts, sizes["val"]) * len(batches)
    looked = SECOND_LOOK * (len(batches) - 1) if any(analyst.needs_optimizer for analyst in parts.analysts) else 0
    for stage, calls, phases, length, likely in (
        ("evaluate", measured, 3, finals, measured[1]),
        ("baseline", (baseline, baseline), int(bool(baseline)), 0.0, baseline),
        ("rollout", (least, sum(batches)), len(batches), before, sum(batches)),
        ("second_look", (0, looked), len(batches) if looked else 0, after, looked // 4),
        ("gate", (0, gates * _gate_calls(config, sizes["val"], known) + probes), gates + credited, after, usual),
        ("race", (0, raced), len(batches), after, raced // 2),
        ("slow_update", (0, later * compared), later, after, later * compared),
        ("speculate", (0, guessed), len(batches), before, guessed // 2),
    ):
        prompt = (task + min(skill.tokens, length), task + length + 20)
        yield Line(role="target", stage=stage, calls=calls, phases=phases, prompt=prompt, likely=likely)


def _race_calls(config: Config, parts: Parts, items: int) -> int:
    """What the candidates of a step may cost before the gate: heats of a share of the split, two at most while all are
    level, and the field halves each time."""
    most = config.gradient.candidates
    if most < 2 or (most == 2 and len(parts.analysts) < 2):
        return 0
    heat = max(heats.LEAST, math.ceil(heats.SHARE * items))
    return min(items, 2 * heat) * most + heat * 2


def _over_turns(lines: Iterable[Line], env: Env) -> Iterable[Line]:
    """A task of many turns may take that many calls, each with what was said before."""
    turns = int(getattr(env, "turns", 1))
    for line in lines:
        low, high = line.prompt
        prompt = (low, high + TURN_TOKENS * (turns - 1))
        calls, likely = (line.calls[0], line.calls[1] * turns), math.ceil(line.likely * (turns + 1) / 2)
        yield replace(line, calls=calls, phases=line.phases * turns, prompt=prompt, likely=likely)


def _gate_calls(config: Config, items: int, known: bool) -> int:
    """The most that one gate may ask: the split once, and for a noisy target its repeats of both skills."""
    if config.evaluation.gate == "strict" or known:
        return items
    return items * (2 + 2 * config.evaluation.max_repeats)


def _optimizer_lines(
    config: Config, parts: Parts, batches: list[int], task: float, skill: tuple[int, int]
) -> Iterable[Line]:
    """Every question may have to be asked twice, where the first reply cannot be used."""
    if not needs_optimizer(config, parts):
        return
    gradient, optimizer, epochs = config.gradient, config.optimizer, config.train.num_epochs
    analysts = sum(analyst.needs_optimizer for analyst in parts.analysts)
    steps = len(batches)
    output = min(config.role("target").max_tokens, REPLY_TOKENS["target"])
    each = task + output + 60
    letters = [_letters(config, size, each) for size in batches]
    causes = math.ceil(1 / max(gradient.deep_reflect_threshold, 0.1))
    lists = [count + causes for count in letters]  # a deep reflection is a list of proposals, too
    merges = sum(_merges(count, gradient.merge_fan_in) for count in lists) if gradient.merge == "llm" else 0
    shown = (gradient.minibatch_size or max(batches, default=0)) * each
    others = min(MOST_OTHERS * min(task, LONGEST_OTHER), room_for_others(gradient.prompt_tokens))
    read = (task + skill[0], min(shown, gradient.prompt_tokens) + others + skill[1] + 4000)
    later = epochs - 1 if optimizer.use_slow_update else 0
    notes = epochs - 1 if optimizer.use_meta_skill else 0
    several = sum(_merges(count, gradient.merge_fan_in) for count in letters) if gradient.merge == "llm" else 0
    for stage, calls, phases, prompt, likely in (
        # a batch without a failure needs no letter
        ("reflect", (0, 2 * sum(letters) * analysts), steps, read, sum(letters) * analysts),
        ("deep_reflect", (0, 2 * causes * steps * analysts), steps, read, 0),
        ("merge", (0, 2 * merges), steps, (100, skill[1] + 4000), several),
        ("rank", (0, 2 * steps * (gradient.rank == "llm")), steps, (100, skill[1] + 4000), steps),
        ("slow_update", (0, 2 * later), later, (skill[0], skill[1] + optimizer.slow_update_samples * 750), later),
        ("meta_skill", (0, 2 * notes), notes, (100, 4000), notes),
    ):
        asked = count_tokens(prompts.load(stage)) if stage in prompts.STAGES else 300
        whole = (prompt[0] + asked, prompt[1] + asked)
        yield Line(
            role="optimizer", stage=stage, calls=calls, phases=phases, prompt=whole, likely=min(likely, calls[1])
        )


def _letters(config: Config, items: int, each: float) -> int:
    """How many letters a batch takes at most: what fits into one, or the minibatches that the config asks for."""
    gradient = config.gradient
    size = gradient.minibatch_size or max(1, int(gradient.prompt_tokens / each))
    return gradient.samples * math.ceil(items / size)


def _merges(lists: int, fan_in: int) -> int:
    """Requests until one list of proposals is left."""
    count = 0
    while lists > 1:
        lists = math.ceil(lists / fan_in)
        count += lists
    return count


def _judge_lines(config: Config, lines: Sequence[Line], task: float) -> Iterable[Line]:
    """A judge scores every rollout, and may have to be asked twice."""
    if config.env.scoring == "judge":
        rollouts = [line for line in lines if line.role == "target"]
        low, high = (sum(line.calls[end] for line in rollouts) for end in (0, 1))
        prompt = (task + 200, task + 300 + min(config.role("target").max_tokens, REPLY_TOKENS["target"]))
        phases = sum(line.phases for line in rollouts)
        likely = sum(line.likely for line in rollouts)
        yield Line(role="optimizer", stage="judge", calls=(low, 2 * high), phases=phases, prompt=prompt, likely=likely)


def _growth(
    config: Config, parts: Parts, train: Sequence[Item], skill: Skill, batches: list[int], task: float
) -> list[float]:
    """The skill's length before the first step and after each, in a run in which every edit is accepted."""
    most, steps = max(skill.tokens, config.optimizer.max_skill_tokens), len(batches)
    usual = EDIT_TOKENS["sim" if config.models.optimizer_model.startswith("sim:") else "llm"]
    alone = all(isinstance(analyst, ExemplarAnalyst) for analyst in parts.analysts)
    lengths = [float(skill.tokens)]
    for number, batch in enumerate(batches, 1):
        rate = scheduled_rate(number, steps, config.optimizer, parts.schedule)
        block = min(len(closed_set(train)) or batch, batch) * (task + EXAMPLE_TOKENS)
        examples = min(block, config.optimizer.max_edit_tokens) if _shows_examples(parts) else 0
        grown = exemplar.ROUNDS * examples + usual if alone else rate * usual + examples
        lengths.append(min(most, lengths[-1] + grown))
    return lengths


def _shows_examples(parts: Parts) -> bool:
    return any(isinstance(analyst, ExemplarAnalyst) for analyst in parts.analysts)


def _item_tokens(env: Env) -> list[int]:
    texts = [
        f"{item.context}\n\n{item.question}"
        for split in SPLITS
        for item in env.items(split)[:: max(1, len(env.items(split)) // _SAMPLE)]
    ]
    return [count_tokens(text) for text in texts]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def is_deterministic(config: Config, role: str) -> bool:
    """What the config says, else what the provider is known for."""
    declared = config.role(role).deterministic
    name: str = getattr(config.models, f"{role}_model")
    if declared is not None:
        return declared
    if getattr(config.models, f"{role}_temperature"):
        return False
    return SimulatedModel(name).deterministic if name.startswith("sim:") else name.startswith("local:")


def _call_seconds(config: Config, role: str) -> Range:
    name: str = getattr(config.models, f"{role}_model")
    if name.startswith("handoff"):
        return LETTER_SECONDS
    if not name.startswith("sim:"):
        return SECONDS[role]
    options = SimulatedModel(name).options
    latency = options.optimizer_latency if role == "optimizer" else options.latency
    return latency, latency * (1 + options.jitter) + 0.01


def _usage(config: Config, role: str, lines: Sequence[Line]) -> tuple[Usage, Usage]:
    longest = config.role(role).max_tokens
    if getattr(config.models, f"{role}_reasoning_effort") in {"", "none"}:
        longest = min(longest, REPLY_TOKENS[role])
    low = sum(line.calls[0] * line.prompt[0] for line in lines)
    high = sum(line.calls[1] * line.prompt[1] for line in lines)
    calls = (sum(line.calls[0] for line in lines), sum(line.calls[1] for line in lines))
    return Usage(prompt=round(low), completion=calls[0]), Usage(prompt=round(high), completion=calls[1] * longest)


def _likely(config: Config, role: str, env: Env, lines: Sequence[Line]) -> Usual:
    """With replies about as long as the answers."""
    calls = sum(line.likely for line in lines)
    answers = [count_tokens(item.answers[0]) for item in env.items("train")[:_SAMPLE] if item.answers]
    reply = REPLY_TOKENS["optimizer"] if role == "optimizer" else 20 + (_mean(answers) if answers else 100)
    asked = sum(line.likely * (line.prompt[0] + GROWN * (line.prompt[1] - line.prompt[0])) for line in lines)
    usage = Usage(prompt=round(asked), completion=round(calls * min(reply, config.role(role).max_tokens)))
    price = price_of(getattr(config.models, f"{role}_model"), config.budget.prices)
    tokens = usage.prompt + usage.completion
    return Usual(calls=_two_digits(calls), tokens=_two_digits(tokens), usd=cost_of(usage, price))


def _two_digits(number: int) -> int:
    step: int = 10 ** max(0, len(str(number)) - 2)
    return number // step * step


def _dollars(config: Config, role: str, usage: tuple[Usage, Usage]) -> Range | None:
    price = price_of(getattr(config.models, f"{role}_model"), config.budget.prices)
    low, high = (cost_of(each, price) for each in usage)
    return None if low is None or high is None else (low, high)


def _seconds(lines: Iterable[Line], widths: dict[str, int], lasts: Mapping[str, Range]) -> Range:
    low = high = 0.0
    for line in lines:
        width, (quick, slow) = widths[line.role], lasts[line.role]
        low += line.calls[0] / width * quick
        if line.phases:
            high += line.phases * math.ceil(line.calls[1] / line.phases / width) * slow
    return low, high


def with_real_figures(plan: Plan, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The plan with a run's real figures, for the summary."""
    tokens = {role: sum(v for k, v in summary["tokens"][role].items() if k != "cached") for role in ROLES}
    return {
        "estimate": True,
        "steps": {"planned": plan.steps, "real": summary["steps"]["run"]},
        "calls": {role: _row(plan.calls(role), summary["calls"][role]) for role in ROLES},
        "tokens": {role: _row(plan.tokens[role], tokens[role]) for role in ROLES},
        "usd": {role: _row(plan.usd[role], summary["cost_usd"][role]) for role in ROLES},
        "seconds": _row(plan.seconds, summary["seconds"]),
        "by_stage": {
            role: {
                line.stage: _row(line.calls, summary["calls_by_stage"][role].get(line.stage, 0))
                for line in plan.lines
                if line.role == role
            }
            for role in ROLES
        },
    }


def _row(planned: Range | None, real: float | None) -> dict[str, Any]:
    low, high = planned or (None, None)
    return {"low": low, "high": high, "real": real}
