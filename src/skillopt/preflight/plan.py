"""Estimates a run before anything is paid for: calls by stage and role, tokens, dollars and time.

The number of steps is exact (training/batches.py). All other figures are estimates for a run that does all its steps:
each is a likely value with a range around it (record/forecast.py). A run that ends early needs less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skillopt.config import Config
from skillopt.models import open_model
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.provider_table import provider_of
from skillopt.record.base import ROLES
from skillopt.record.forecast import Estimate, Plan, StagePlan
from skillopt.sim.model import SimulatedModel
from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import SPLITS, Env, closed_set, is_judged
from skillopt.tasks.judge import calls_per_answer
from skillopt.training import prompts
from skillopt.training.analysts.exemplar import ExemplarAnalyst
from skillopt.training.batches import batch_sizes
from skillopt.training.gates.minimal import FIRST_TASKS, MORE_TASKS
from skillopt.training.initial import needs_baseline
from skillopt.training.optimizer_context import MOST_PROBED
from skillopt.training.parts import Parts, needs_optimizer, resolve
from skillopt.training.requests.context import LONGEST_OTHER, MOST_OTHERS, tokens_for_others
from skillopt.training.schedule import scheduled_rate
from skillopt_benchmarks.published import published_set

EDIT_TOKENS = {"llm": 200, "sim": 10}
"""Tokens of an edit, by the kind of optimizer, from recorded runs; used to estimate the skill's length."""
LONG_SKILL = 4000
"""The maximum number of tokens that an LLM adds to a skill (assumed)."""
ACCEPTED = 0.5
"""The share of steps that the gate accepts, for the estimate."""
EXAMPLE_TOKENS = 12
"""Tokens that a worked example has in addition to its task: the layout and the answer."""
REPLY_TOKENS = {"searchqa": 5, "docvqa": 7, "alfworld": 6, "textworld": 4, "reasoning_gym": 12, "officeqa": 18}
REPLY_TOKENS |= {"sim": 8, "livemathematicianbench": 400, "spreadsheetbench": 300}
"""Tokens of the target's reply, by env. The last two are assumed; all others are from recorded runs of the mini sets
(bench/learning)."""
REPLY, OPTIMIZER_REPLY, JUDGE_REPLY = 25, 1600, 60
"""Tokens of a reply: of the target in an env that is not in `REPLY_TOKENS`, of the optimizer (from recorded runs), and
of a judge (assumed)."""
_REPLIES = {"optimizer": OPTIMIZER_REPLY, "judge": JUDGE_REPLY}
TURN_TOKENS, TURNS = 60, 0.6
"""The number of tokens that each turn adds to later prompts, and the share of the allowed turns that a task uses."""
SECONDS = {"target": 1.5, "optimizer": 15.0, "judge": 3.0}
"""Seconds per call, by role (assumed)."""
HANDOFF_SECONDS = 120.0
"""Seconds that a person or agent needs for one letter (assumed)."""
GATED = 0.8
"""The share of the validation tasks that a gate measures before it decides. The value was measured in the simulated
world."""
REPEATED = 0.7
"""The number of fresh samples in a gate with a noisy target, divided by the number of validation tasks. The value was
measured in the simulated world."""
WORDED = 3
"""The number of wordings of the minimal remedy that are tried on training tasks (assumed)."""
RETRIED = 1.1
"""The mean number of requests to the optimizer for one usable reply."""
_SAMPLE = 100
"""The maximum number of items of a split from which the mean length is estimated."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The facts about a set of tasks that a plan needs."""

    sizes: dict[str, int]
    tokens: float
    """The mean number of tokens of a task."""
    text_tokens: float = 0.0
    """The mean number of tokens of the part of a task that analysts read; 0: analysts read the whole task."""
    turns: int = 1
    """The maximum number of target calls that a task may take."""
    answers: int = 0
    """If the answers are a small closed set, the number of different answers; else 0."""
    judged: bool = False
    asks_optimizer: bool = True


def workload_of(config: Config, env: Env, parts: Parts) -> Workload:
    return Workload(
        sizes={split: len(env.items(split)) for split in SPLITS},
        tokens=_task_tokens(env),
        turns=env.turns,
        answers=len(closed_set(env.items("train"))),
        judged=is_judged(env),
        asks_optimizer=needs_optimizer(config, parts, env),
    )


def plan_run(config: Config, env: Env, skill: Skill, *, parts: Parts | None = None) -> Plan:
    """The plan of a whole run from its beginning."""
    parts = parts or resolve(config)
    return plan_tasks(config, workload_of(config, env, parts), skill, parts)


def plan_published(config: Config, skill: Skill) -> Plan | None:
    """The plan for a benchmark's full set, made from published figures and not from the data; None for other tasks."""
    facts = published_set(config.env.benchmark)
    if facts is None:
        return None
    parts = resolve(config)
    tasks = Workload(
        sizes=facts.sizes,
        tokens=facts.tokens,
        text_tokens=facts.text_tokens,
        turns=facts.turns,
        asks_optimizer=needs_optimizer(config, parts),
    )
    return plan_tasks(config, tasks, skill, parts)


def plan_tasks(config: Config, tasks: Workload, skill: Skill, parts: Parts) -> Plan:
    epochs = batch_sizes(tasks.sizes["train"], config.train)
    batches = [size for epoch in epochs for size in epoch]
    schedule = parts.schedule_of(config, tasks.sizes["train"], skill)
    rates = [scheduled_rate(n, len(batches), config.optimizer, schedule.shape) for n in range(1, len(batches) + 1)]
    middle = (skill.tokens + _grown(config, parts, tasks, skill, batches, rates)) / 2
    lines = [*_target_stages(config, parts, tasks, skill, batches, middle)]
    if tasks.asks_optimizer:
        lines += _optimizer_stages(config, parts, tasks, batches, middle)
    if tasks.judged:
        lines.append(_judge_stage(lines, tasks, config))
    lines = [line for line in lines if line.calls]
    roles = (*ROLES, "judge") if any(line.role == "judge" for line in lines) else ROLES
    widths: dict[str, int] = {role: config.role(role).workers for role in roles}
    durations: dict[str, float] = {role: _call_seconds(config, role) for role in roles}
    usage = {role: _usage(config, role, [line for line in lines if line.role == role]) for role in roles}
    return Plan(
        steps=len(batches),
        epochs=len(epochs),
        schedule=schedule.summary,
        items=tasks.sizes,
        lines=tuple(lines),
        tokens={role: Estimate.around(each.prompt + each.completion) for role, each in usage.items()},
        cached={role: Estimate.around(each.cached) for role, each in usage.items() if each.cached},
        usd={role: _dollars(config, role, usage[role]) for role in roles},
        seconds=Estimate.around(sum(_seconds(line, widths[line.role], durations[line.role]) for line in lines)),
        call_seconds=durations,
        widths=widths,
    )


def _target_stages(
    config: Config, parts: Parts, tasks: Workload, skill: Skill, batches: list[int], middle: float
) -> Iterable[StagePlan]:
    deterministic, steps = is_deterministic(config, "target"), len(batches)
    val, test = tasks.sizes["val"], tasks.sizes["test"] if config.evaluation.test else 0
    guided = config.train.num_epochs - 1 if config.optimizer.use_slow_update else 0
    rejected = (1 - ACCEPTED) * steps
    again = 0 if deterministic else val  # the best skill is measured again, because its score may be luck
    baseline = test if config.evaluation.baselines and needs_baseline(skill) else 0
    reads = any(analyst.needs_optimizer for analyst in parts.analysts)
    looks = MOST_PROBED * rejected if reads else 0
    compared = 2 * min(config.optimizer.slow_update_samples, tasks.sizes["train"])
    noisy = not deterministic and config.evaluation.gate != "strict"
    gates = steps + guided + rejected * config.evaluation.credit_gates / 2
    gates += 1 if reads else 0  # the minimal remedy of the first step
    train = tasks.sizes["train"]
    more = min(MORE_TASKS, max(0, train - FIRST_TASKS))  # for two wordings, in half of all trainings
    worded = WORDED * min(train, FIRST_TASKS) + more if batches and reads else 0
    turns = max(1.0, TURNS * tasks.turns)
    for stage, count, rounds in (
        ("evaluate", val + again + 2 * test, 3),
        ("baseline", baseline, 1),
        ("rollout", sum(batches), steps),
        ("second_look", looks, steps),
        ("gate", gates * val * (GATED + noisy * REPEATED), steps + guided),
        ("wording", worded, WORDED),
        ("slow_update", guided * compared, guided),
    ):
        length = 0.0 if stage == "baseline" else middle
        prompt = tasks.tokens + length + 20 + TURN_TOKENS * min(turns - 1, _history(config))
        calls = round(count * turns)
        often = math.ceil(rounds * turns)
        yield StagePlan(role="target", stage=stage, calls=calls, rounds=often, prompt=prompt, shared=length)


def _history(config: Config) -> float:
    """The maximum number of earlier turns in a prompt."""
    history = config.env.options.get("history")
    return history if isinstance(history, int) else math.inf


def _optimizer_stages(
    config: Config, parts: Parts, tasks: Workload, batches: list[int], middle: float
) -> Iterable[StagePlan]:
    gradient, optimizer, steps = config.gradient, config.optimizer, len(batches)
    analysts = sum(analyst.needs_optimizer for analyst in parts.analysts)
    task = tasks.text_tokens or tasks.tokens
    shown = task + reply_tokens(config) + 60
    fitting = gradient.minibatch_size or max(1, int(gradient.prompt_tokens / shown))
    requests = [math.ceil(size / fitting) for size in batches]
    deep = steps * analysts / 8 if gradient.deep_reflect_threshold < 1 else 0.0  # merged with other edits
    merges = (sum(_merges(count, gradient.merge_fan_in) for count in requests) + deep) * (gradient.merge == "llm")
    examples = min(fitting, max(batches, default=0)) * shown
    others = min(MOST_OTHERS * min(task, LONGEST_OTHER), tokens_for_others(gradient.prompt_tokens))
    read = min(examples, gradient.prompt_tokens) + others + middle
    epochs = config.train.num_epochs
    guided, notes = (epochs - 1) * optimizer.use_slow_update, epochs * optimizer.use_meta_skill
    for stage, count, rounds, prompt in (
        ("reflect", sum(requests) * analysts, steps, read),
        ("deep_reflect", deep, steps, read),
        ("merge", merges, steps, middle + 1500),
        ("slow_update", guided, guided, middle + optimizer.slow_update_samples * shown),
        ("meta_skill", notes, notes, 2000),
    ):
        system = count_tokens(prompts.with_advice(stage, prompts.PARTS[:1])) if stage in prompts.STAGES else 300
        calls = math.ceil(RETRIED * count)
        yield StagePlan(role="optimizer", stage=stage, calls=calls, rounds=rounds, prompt=prompt + system)


def _merges(lists: int, fan_in: int) -> int:
    """The number of requests that are needed to merge several lists of edits into one."""
    count = 0
    while lists > 1:
        lists = math.ceil(lists / fan_in)
        count += lists
    return count


def _judge_stage(lines: Sequence[StagePlan], tasks: Workload, config: Config) -> StagePlan:
    """The calls of the judge, which scores each rollout at least once."""
    target = [line for line in lines if line.role == "target"]
    calls, rounds = (sum(each) for each in zip(*((line.calls, line.rounds) for line in target), strict=True))
    role, prompt = "judge" if config.models.judge_model else "optimizer", tasks.tokens + 250 + reply_tokens(config)
    calls *= calls_per_answer(config.env)
    return StagePlan(role=role, stage="judge", calls=calls, rounds=rounds, prompt=prompt)


def _grown(
    config: Config, parts: Parts, tasks: Workload, skill: Skill, batches: list[int], rates: list[float]
) -> float:
    """The estimated tokens of the skill at the end of a run."""
    exemplars = [isinstance(analyst, ExemplarAnalyst) for analyst in parts.analysts]
    edit = EDIT_TOKENS["sim" if provider_of(config.models.optimizer_model).is_simulated else "llm"]
    block = min(tasks.answers or max(batches, default=0), max(batches, default=0)) * (tasks.tokens + EXAMPLE_TOKENS)
    written = 0.0 if all(exemplars) else ACCEPTED * sum(rates) * edit
    written += any(exemplars) * min(block, config.optimizer.max_edit_tokens)
    return max(skill.tokens, min(config.optimizer.max_skill_tokens, skill.tokens + min(LONG_SKILL, written)))


def reply_tokens(config: Config) -> int:
    return min(config.role("target").max_tokens, REPLY_TOKENS.get(config.env.name, REPLY))


def _task_tokens(env: Env) -> float:
    """The mean number of tokens of a task, from a sample of each split."""
    splits = [env.items(split) for split in SPLITS]
    sample = [item for items in splits for item in items[:: max(1, len(items) // _SAMPLE)]]
    return sum(count_tokens(f"{item.context}\n\n{item.question}") for item in sample) / max(1, len(sample))


def is_deterministic(config: Config, role: str) -> bool:
    """True if the role's model always gives the same reply to the same request. The config decides; if it does not say,
    the provider decides."""
    declared = config.role(role).deterministic
    name = config.role(role).model
    if declared is not None:
        return declared
    if config.role(role).temperature:
        return False
    known = provider_of(name).deterministic
    return open_model(role, config).deterministic if known is None else known


def _call_seconds(config: Config, role: str) -> float:
    name = config.role(role).model
    if provider_of(name).human_paced:
        return HANDOFF_SECONDS
    if not provider_of(name).is_simulated:
        return SECONDS[role]
    options = SimulatedModel(name).options
    return (options.optimizer_latency if role != "target" else options.latency) * (1 + options.jitter / 2) + 0.003


def _usage(config: Config, role: str, lines: Sequence[StagePlan]) -> Usage:
    """The estimated tokens of a role. If the role has a reasoning effort, a reply is assumed to use half of its limit.
    Prompts are treated as cached only for providers that SkillOpt can ask to cache them."""
    settings = config.role(role)
    reply = reply_tokens(config) if role == "target" else min(settings.max_tokens, _REPLIES[role])
    reply = reply if settings.reasoning_effort in {"", "none"} else settings.max_tokens // 2
    prompt = round(sum(line.calls * line.prompt for line in lines))
    provider = provider_of(settings.model)
    shared = [line for line in lines if provider.cache_settings and line.shared >= provider.cached_from]
    return Usage(
        prompt=prompt,
        completion=sum(line.calls for line in lines) * reply,
        cached=round(sum(max(0, line.calls - line.rounds) * line.shared for line in shared)),
        written=round(sum(min(line.calls, line.rounds) * line.shared for line in shared)) * provider.warms_cache,
    )


def _dollars(config: Config, role: str, usage: Usage) -> Estimate | None:
    cost = cost_of(usage, price_of(config.role(role).model, config.budget.prices))
    return None if cost is None else Estimate.around(cost)


def _seconds(line: StagePlan, width: int, duration: float) -> float:
    return line.rounds * math.ceil(line.calls / max(1, line.rounds) / width) * duration
