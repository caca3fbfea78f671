"""What a run will take, before anything is spent: calls by stage and role, tokens, money and time, as ranges.

The steps come from the plan that the training loop itself follows (training/batches.py). The low end is a run in which
few steps have something to gate, the high end one in which all have; a run that ends early takes less. Tokens, money
and time are estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from skillopt.config import Config
from skillopt.models import open_model
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.provider_table import provider_of
from skillopt.record.base import ROLES
from skillopt.record.forecast import Plan, Range, StagePlan
from skillopt.sim.model import SimulatedModel
from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import SPLITS, Env, closed_set, is_judged
from skillopt.training import prompts
from skillopt.training.analysts.exemplar import ROUNDS, ExemplarAnalyst
from skillopt.training.batches import plan_steps
from skillopt.training.gates import credit, screening
from skillopt.training.initial import needs_baseline
from skillopt.training.optimizer_context import MOST_PROBED
from skillopt.training.parts import Parts, needs_optimizer, resolve
from skillopt.training.requests.context import LONGEST_OTHER, MOST_OTHERS, tokens_for_others

EDIT_TOKENS = {"llm": 200, "sim": 40}
"""An edit's length, for the estimate of how the skill grows: a lookup or examples; in the simulated world, a line."""
EXAMPLE_TOKENS = 12
"""What a worked example adds to its task: its form and the answer."""
REPLY_TOKENS = {"target": 256, "optimizer": 1500}
"""A long reply, for the estimate; a model with a reasoning effort may use its whole limit."""
TURN_TOKENS = 60
"""What one turn of a game adds to the prompts after it."""
SECONDS: dict[str, Range] = {"target": (0.5, 5.0), "optimizer": (3.0, 30.0)}
"""Seconds of one call."""
HANDOFF_SECONDS: Range = (30.0, 600.0)
"""What a reader takes for one letter."""
REPEATED = 0.3
"""The share of a split that a noisy gate samples again in every round, at the high end."""
FEW = 8
"""At the low end, one of this many steps has a whole split to gate."""
_SAMPLE = 100
"""Items of a split whose length is looked at."""


def plan_run(config: Config, env: Env, skill: Skill, *, parts: Parts | None = None) -> Plan:
    """The plan of a whole run from its beginning."""
    parts = parts or resolve(config)
    sizes = {split: len(env.items(split)) for split in SPLITS}
    epochs = plan_steps(env.items("train"), config.train)
    batches = [len(step.positions) for epoch in epochs for step in epoch]
    task = _task_tokens(env)
    length = (skill.tokens, _grown(config, parts, env, skill, batches, task))
    lines = [*_target_stages(config, parts, env, skill, sizes, batches, task, length[1])]
    lines += _optimizer_stages(config, parts, env, batches, task, length)
    if is_judged(env):
        lines.append(_judge_stage(config, lines, task))
    widths: dict[str, int] = {role: config.role(role).workers for role in ROLES}
    durations: dict[str, Range] = {role: _call_seconds(config, role) for role in ROLES}
    usage = {role: _usage(config, role, [line for line in lines if line.role == role]) for role in ROLES}
    return Plan(
        steps=len(batches),
        epochs=len(epochs),
        items=sizes,
        lines=tuple(line for line in lines if line.calls[1]),
        tokens={
            role: (low.prompt + low.completion, high.prompt + high.completion) for role, (low, high) in usage.items()
        },
        usd={role: _dollars(config, role, usage[role]) for role in ROLES},
        seconds=_seconds(lines, widths, durations),
        call_seconds=durations,
        widths=widths,
    )


def _target_stages(
    config: Config,
    parts: Parts,
    env: Env,
    skill: Skill,
    sizes: dict[str, int],
    batches: list[int],
    task: float,
    grown: float,
) -> Iterable[StagePlan]:
    """A deterministic target is never asked the same twice, so that a skill that does not change costs nothing."""
    deterministic, steps, val, test = is_deterministic(config, "target"), len(batches), sizes["val"], sizes["test"]
    guided = config.train.num_epochs - 1 if config.optimizer.use_slow_update else 0
    credited = steps * config.evaluation.credit_gates
    probes = credit.MOST_BROKEN * min(credit.MOST_SUSPECTS, math.ceil(config.optimizer.learning_rate))
    again = 0 if deterministic else val  # the winner is measured again, since its score may be luck
    baseline = test if config.evaluation.baselines and needs_baseline(skill) else 0
    screened = min(val, 3 * max(screening.LEAST, math.ceil(screening.SHARE * val))) if len(parts.analysts) > 1 else 0
    looks = MOST_PROBED * (steps - 1) if any(analyst.needs_optimizer for analyst in parts.analysts) else 0
    compared = 2 * min(config.optimizer.slow_update_samples, sizes["train"])
    noisy = not deterministic and config.evaluation.gate != "strict"
    gate = val * (1 + 2 * REPEATED * config.evaluation.max_repeats) if noisy else val
    gates = (steps // FEW * val, round((steps + guided) * gate + credited * (gate + probes) / 2))
    turns, middle = env.turns, (skill.tokens + grown) / 2
    for stage, low, high, rounds in (
        ("evaluate", val + test, val + again + 2 * test, 3),
        ("baseline", baseline, baseline, 1),
        ("rollout", sizes["train"] if deterministic else sum(batches), sum(batches), steps),
        ("second_look", 0, looks, steps),
        ("gate", *gates, steps + guided + credited),
        ("race", 0, 2 * screened * steps, steps),
        ("slow_update", 0, guided * compared, guided),
    ):
        length = 0.0 if stage == "baseline" else middle
        prompt = (task + min(skill.tokens, length), task + length + 20 + TURN_TOKENS * (turns - 1))
        calls = (low, high * turns)  # a task of many turns may take that many calls
        yield StagePlan(role="target", stage=stage, calls=calls, rounds=rounds * turns, prompt=prompt)


def _optimizer_stages(
    config: Config, parts: Parts, env: Env, batches: list[int], task: float, skill: tuple[int, float]
) -> Iterable[StagePlan]:
    """Every request may have to be sent twice, if the first reply cannot be used."""
    if not needs_optimizer(config, parts, env):
        return
    gradient, optimizer, steps = config.gradient, config.optimizer, len(batches)
    analysts = sum(analyst.needs_optimizer for analyst in parts.analysts)
    shown = task + min(config.role("target").max_tokens, REPLY_TOKENS["target"]) + 60
    fitting = gradient.minibatch_size or max(1, int(gradient.prompt_tokens / shown))
    requests = [math.ceil(size / fitting) for size in batches]
    causes = math.ceil(1 / max(gradient.deep_reflect_threshold, 0.1))
    merges = sum(_merges(count + causes, gradient.merge_fan_in) for count in requests) * (gradient.merge == "llm")
    examples = (gradient.minibatch_size or max(batches, default=0)) * shown
    others = min(MOST_OTHERS * min(task, LONGEST_OTHER), tokens_for_others(gradient.prompt_tokens))
    read = (task + skill[0], min(examples, gradient.prompt_tokens) + others + skill[1] + 4000)
    boundaries = config.train.num_epochs - 1
    guided, notes = boundaries * optimizer.use_slow_update, boundaries * optimizer.use_meta_skill
    reflections = sum(requests) * analysts
    for stage, low, high, rounds, prompt in (
        ("reflect", reflections // FEW, 2 * reflections, steps, read),
        ("deep_reflect", 0, causes * steps * analysts // 4, steps, read),
        ("merge", 0, merges, steps, (100, skill[1] + 4000)),
        ("slow_update", 0, 2 * guided, guided, (skill[0], skill[1] + optimizer.slow_update_samples * 750)),
        ("meta_skill", 0, 2 * notes, notes, (100, 4000)),
    ):
        system = count_tokens(prompts.load(stage)) if stage in prompts.STAGES else 300
        whole = (prompt[0] + system, prompt[1] + system)
        yield StagePlan(role="optimizer", stage=stage, calls=(low, high), rounds=rounds, prompt=whole)


def _merges(lists: int, fan_in: int) -> int:
    """Requests until one list of proposals is left."""
    count = 0
    while lists > 1:
        lists = math.ceil(lists / fan_in)
        count += lists
    return count


def _judge_stage(config: Config, rollouts: Sequence[StagePlan], task: float) -> StagePlan:
    """A judge scores every rollout, and may have to be asked twice."""
    target = [line for line in rollouts if line.role == "target"]
    low, high = (sum(line.calls[end] for line in target) for end in (0, 1))
    prompt = (task + 200, task + 300 + min(config.role("target").max_tokens, REPLY_TOKENS["target"]))
    rounds = sum(line.rounds for line in target)
    return StagePlan(role="optimizer", stage="judge", calls=(low, 2 * high), rounds=rounds, prompt=prompt)


def _grown(config: Config, parts: Parts, env: Env, skill: Skill, batches: list[int], task: float) -> float:
    """The skill's length at the end of a run in which every edit is accepted."""
    exemplars = [isinstance(analyst, ExemplarAnalyst) for analyst in parts.analysts]
    edit = EDIT_TOKENS["sim" if provider_of(config.models.optimizer_model).is_simulated else "llm"]
    rate = 1.0 if all(exemplars) else config.optimizer.learning_rate
    answers = len(closed_set(env.items("train")))
    length = float(skill.tokens)
    for size in batches:
        block = min(min(answers or size, size) * (task + EXAMPLE_TOKENS), config.optimizer.max_edit_tokens)
        length += rate * edit + block * any(exemplars) * (ROUNDS if all(exemplars) else 1)
    return min(max(skill.tokens, config.optimizer.max_skill_tokens), length)


def _task_tokens(env: Env) -> float:
    """The mean length of an item, by a sample of each split."""
    splits = [env.items(split) for split in SPLITS]
    sample = [item for items in splits for item in items[:: max(1, len(items) // _SAMPLE)]]
    return sum(count_tokens(f"{item.context}\n\n{item.question}") for item in sample) / max(1, len(sample))


def is_deterministic(config: Config, role: str) -> bool:
    """What the config says, else what the provider is known for."""
    declared = config.role(role).deterministic
    name = config.role(role).model
    if declared is not None:
        return declared
    if config.role(role).temperature:
        return False
    known = provider_of(name).deterministic
    return open_model(role, config).deterministic if known is None else known


def _call_seconds(config: Config, role: str) -> Range:
    name = config.role(role).model
    if provider_of(name).human_paced:
        return HANDOFF_SECONDS
    if not provider_of(name).is_simulated:
        return SECONDS[role]
    options = SimulatedModel(name).options
    latency = options.optimizer_latency if role == "optimizer" else options.latency
    return latency, latency * (1 + options.jitter) + 0.01


def _usage(config: Config, role: str, lines: Sequence[StagePlan]) -> tuple[Usage, Usage]:
    longest = config.role(role).max_tokens
    if config.role(role).reasoning_effort in {"", "none"}:
        longest = min(longest, REPLY_TOKENS[role])
    low, high = (round(sum(line.calls[end] * line.prompt[end] for line in lines)) for end in (0, 1))
    least, most = (sum(line.calls[end] for line in lines) for end in (0, 1))
    return Usage(prompt=low, completion=least), Usage(prompt=high, completion=most * longest)


def _dollars(config: Config, role: str, usage: tuple[Usage, Usage]) -> Range | None:
    price = price_of(config.role(role).model, config.budget.prices)
    low, high = (cost_of(each, price) for each in usage)
    return None if low is None or high is None else (low, high)


def _seconds(lines: Iterable[StagePlan], widths: dict[str, int], durations: Mapping[str, Range]) -> Range:
    low = high = 0.0
    for line in lines:
        width, (quick, slow) = widths[line.role], durations[line.role]
        low += line.calls[0] / width * quick
        if line.rounds:
            high += line.rounds * math.ceil(line.calls[1] / line.rounds / width) * slow
    return low, high
