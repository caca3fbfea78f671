"""The checks of `skillopt doctor`. A check passes, warns or fails. A warning or failure says how to fix the problem."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.errors import SkillOptError
from skillopt.measure.probe import plan_probe, probe_folder
from skillopt.models import open_model
from skillopt.models.base import Message, TransientError
from skillopt.models.bound import BoundChat
from skillopt.models.call import Caller
from skillopt.models.prices import price_of
from skillopt.models.structured import ask
from skillopt.preflight.plan import is_deterministic, plan_run
from skillopt.processes.coding_agents import preset_of
from skillopt.provider_table import provider_of
from skillopt.record.files import read_json
from skillopt.record.forecast import Check, Estimate, Plan, Preflight, total
from skillopt.record.journal import Journal
from skillopt.record.probe import Probe
from skillopt.skill import Skill
from skillopt.statistics import smallest_detectable, smallest_sure
from skillopt.tasks import using_env
from skillopt.tasks.base import SPLITS, Env, Item, check_splits, image_names, is_noisy, score_output, unknown_members
from skillopt.tasks.command import CommandAgent
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.scorer_check import can_be_tried, scorer_finding, two_scores
from skillopt.tasks.splits import how_to_enlarge
from skillopt.tasks.workspace import Workspaces
from skillopt.training.callers import make_callers, open_models
from skillopt.training.initial import initial_kind, initial_of, run_key
from skillopt.training.parts import Parts, roles_of
from skillopt.training.requests.replies import text_schema
from skillopt.training.schedule import auto_schedule

NOISE = 0.1
"""The assumed share of outcomes that change by chance. With it, the doctor calculates the smallest gain that a gate can
detect."""
PLAUSIBLE = 0.25
"""A gain that a training often reaches. The splits should be large enough to detect such a gain."""
_SCORED = 10
"""The scorer is tried with at most this many items of each split."""
_ASKED = Item(id="doctor", question="Reply with the word ready. Do nothing else.")


def passed(name: str, says: str) -> Check:
    return Check(name=name, status="pass", says=says)


def failed(name: str, says: str, fix: str) -> Check:
    return Check(name=name, status="fail", says=says, fix=fix)


def warned(name: str, says: str, fix: str) -> Check:
    """A check that warns and names the fix; if `fix` is empty, a check that passes."""
    return Check(name=name, status="warn" if fix else "pass", says=says, fix=fix)


async def examine(config: Config, *, offline: bool = False) -> list[Check]:
    """Run all checks. If `offline` is false, each role's endpoint gets one short request, which is paid for."""
    with ExitStack() as stack:
        try:
            env = stack.enter_context(using_env(config))
            check_splits(env)
            skill = initial_of(config)
        except SkillOptError as error:
            return [failed("data", str(error), "correct this; the other checks need the data")]
        checks = [*cheap(config, env, skill, plan_run(config, env, skill)), await scorer(env, config.evaluation.metric)]
        checks.append(_headroom(config, env, skill))
    opened = [_opens(config, role) for role in roles_of(config, env=env)]
    checks += opened
    if not offline and all(check.status == "pass" for check in opened):
        checks += await endpoints(config, env)
        if isinstance(config.env.command, str) and preset_of(config.env.command) is not None:
            checks.append(await _agent(config))
    return checks


def _headroom(config: Config, env: Env, skill: Skill) -> Check:
    """The finding of an earlier probe of the same tasks and target; if there is none, the cost of a probe."""
    file = probe_folder(config, env, skill) / "probe.json"
    if file.is_file():
        found = Probe.model_validate(read_json(file))
        fix = "" if found.headroom == "train" else "see docs/choosing.md before you train"
        return warned("headroom", found.sentence, fix)
    plan = plan_probe(config, env, skill)
    cost = f" and ${plan.usd.likely:.2f}" if plan.usd else ""
    takes = f"estimated cost: {plan.calls} calls, {plan.tokens.likely:,.0f} tokens{cost}"
    return passed("headroom", f"not measured; `skillopt probe` says whether a skill can help ({takes})")


async def _agent(config: Config) -> Check:
    """If the target is a coding agent, check with one short task whether it answers."""
    started = time.monotonic()
    quick = config.model_copy(update={"hardware": config.hardware.model_copy(update={"max_retries": 0})})
    try:
        agent = CommandAgent(quick.env, Workspaces(Path()))
        with Journal(":memory:") as journal:
            callers, _, _ = make_callers(quick, journal, {"target": open_model("target", quick)})
            episode = await agent.run(_ASKED, Skill(""), BoundChat(callers["target"], label="doctor", stage="doctor"))
        problem = episode.score.feedback if episode.score else "" if episode.output.strip() else "an empty answer"
    except SkillOptError as error:
        problem = str(error)
    if problem:
        fix = "run the same command in a terminal; docs/your_data.md says how to pass it a key"
        return failed("target agent", problem, fix)
    return passed("target agent", f"{config.env.command} answered in {time.monotonic() - started:.1f} s")


def cheap(config: Config, env: Env, skill: Skill, plan: Plan) -> list[Check]:
    """The checks that need only the config and the data. `skillopt train` also runs them."""
    return [
        check_sizes(config, env),
        _gate(config),
        _initial(config, skill),
        _schedule(config, plan, skill),
        _boundary(config),
        *_prices(config),
        _output(config, env, skill),
        *_dotenv(),
        _budget(config, plan),
        *_warnings(env),
        *_images(config, env),
    ]


def preflight(config: Config, env: Env, skill: Skill, parts: Parts) -> Preflight:
    """The plan of a training, and the findings of the checks that cost nothing."""
    plan = plan_run(config, env, skill, parts=parts)
    return Preflight(plan=plan, advice=[check for check in cheap(config, env, skill, plan) if check.status != "pass"])


def check_sizes(config: Config, env: Env) -> Check:
    """Check that the splits are large enough. Too few tasks are the most frequent reason for "cannot tell"."""
    sizes = {split: len(env.items(split)) for split in SPLITS}
    says = ", ".join(f"{count} {split}" for split, count in sizes.items()) + "; disjoint"
    known = is_deterministic(config, "target")
    seen = {
        "val": 1 / sizes["val"] if known else smallest_detectable(sizes["val"], NOISE, config.evaluation.alpha),
        "test": smallest_sure(sizes["test"]),
    }
    noise = "" if known else f"at {NOISE:.0%} noise "
    says += (
        f"; {noise}the smallest detectable gain: {seen['val']:.2f} at the gate, {seen['test']:.2f} on test (estimate)"
    )
    small = [split for split, gain in seen.items() if gain > PLAUSIBLE]
    how = "; ".join(dict.fromkeys(how for split in small if (how := how_to_enlarge(config.flat(), split))))
    fix = f"to detect smaller gains, add {' and '.join(small)} tasks" + (f": {how}" if how else "") if small else ""
    return warned("splits", says, fix)


def _gate(config: Config) -> Check:
    """Check the gate. A strict gate measures each skill only once, so with a noisy target some gains are luck."""
    gate = config.evaluation.gate
    if gate == "strict" and not is_deterministic(config, "target"):
        says = f"strict, but {config.models.target_model} may give different answers to the same task"
        fix = "set evaluation.gate to paired, which confirms gains with fresh samples"
        return warned("gate", says, fix)
    return passed("gate", gate)


def _warnings(env: Env) -> Iterator[Check]:
    """The env's own warnings about its data, for example that labels can be guessed from position or length, and
    warnings about members of the env that are not used."""
    for says in env.warnings:
        yield warned("data", says, "compare the score with the baselines; see docs/benchmarks.md")
    for name, meant in unknown_members(env).items():
        says = f"the env's '{name}' is not a member of Env and is not used" + f"; did you mean '{meant}'?" * bool(meant)
        yield warned("env", says, "rename it, or begin the names of helpers with an underscore; see docs/your_env.md")


def _images(config: Config, env: Env) -> Iterator[Check]:
    """Find tasks with images that the target cannot see, or may not be able to see."""
    count = sum(bool(image_names(item)) for split in SPLITS for item in env.items(split))
    if not count or config.env.agent or config.env.command or not isinstance(env, QAEnv):
        return
    target, takes = config.models.target_model, provider_of(config.models.target_model).takes_images
    if takes is False:
        says = f"{count} tasks have images, and {target} cannot see them"
        yield failed("images", says, "choose a target that takes images")
    elif takes is None:
        says = f"{count} tasks have images; SkillOpt does not know whether {target} can see them"
        yield warned(
            "images",
            says,
            "read the model's documentation: a model that cannot see images refuses such tasks, or answers without "
            "them",
        )


def _initial(config: Config, skill: Skill) -> Check:
    kind = initial_kind(config.train.init_skill, skill)
    says = f"{kind}, {skill.tokens} tokens"
    fix = "" if config.notes.init_skill else "optional: say in notes.init_skill why you chose it; the report prints it"
    return warned("initial skill", says, fix)


def _schedule(config: Config, plan: Plan, skill: Skill) -> Check:
    """Check the schedule. If `auto` would choose a different schedule, notes.schedule must give a reason."""
    rate, patience, fix = config.optimizer.learning_rate, config.train.patience, ""
    auto, name = auto_schedule(plan.steps, skill.tokens), plan.schedule.partition(":")[0]
    epochs = "1 epoch" if plan.epochs == 1 else f"{plan.epochs} epochs"
    if plan.schedule == auto.summary:
        says = f"{plan.schedule}; chosen by auto; learning rate {rate:g}, {epochs}"
    else:
        says = f"{name}, learning rate {rate:g}, {plan.steps} steps in {epochs}"
        if (name == "constant") != (auto.name == "constant"):
            says += f"; auto would choose {auto.summary}"
            fix = "" if config.notes.schedule else "set optimizer.lr_scheduler=auto, or say in notes.schedule why not"
    if plan.steps < 4 and name != "constant":
        fix = "a schedule needs at least 4 steps: lower train.batch_size, or raise train.num_epochs"
    elif patience >= plan.steps > 0:
        fix = (
            f"train.patience {patience} can never end a run of {plan.steps} steps; lower train.patience, or set it to 0"
        )
    return warned("schedule", says, fix)


def _boundary(config: Config) -> Check:
    """Check what happens at the end of epochs. With several epochs, the slow update is always on, because the config
    refuses anything else."""
    if config.train.num_epochs == 1:
        return passed("epoch boundary", "one epoch: no slow update")
    if not config.optimizer.use_meta_skill:
        fix = "set optimizer.use_meta_skill=true, so that later epochs know what earlier epochs tried"
        return warned("epoch boundary", "the slow update is on, the meta skill is off", fix)
    return passed("epoch boundary", "slow update and meta skill are on")


def _prices(config: Config) -> Iterator[Check]:
    for role in roles_of(config):
        name = config.role(role).model
        price = price_of(name, config.budget.prices)
        if price is None:
            fix = (
                f'give the price as budget.prices={{"{name}": {{input: 2.5, output: 10}}}} (dollars per million tokens)'
            )
            yield warned(f"{role} price", f"the price of {name} is unknown", fix)
        else:
            says = f"{name}: ${price.input:g} in, ${price.output:g} out, per million tokens"
            yield passed(f"{role} price", says)


def _output(config: Config, env: Env, skill: Skill) -> Check:
    """Check that the output folder, or its nearest existing parent, is writable. Report which subfolder of the output
    folder the run will use."""
    root = Path(config.env.output_root).absolute()
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = "set env.output_root to a folder that you may write to"
        return failed("output folder", f"{place} is not writable", fix)
    free = shutil.disk_usage(place).free / 1e9
    key = run_key(config, env, skill)
    run = key.find()
    name = run.root.name if run else f"DATE_{key.name}"
    there = "exists and will be continued (--fresh starts a new one)" if run else "will be new"
    says = f"{root} is writable, {free:.1f} GB free; the run's folder {key.folder.name}/{name} {there}"
    return warned(
        "output folder", says, "free some space, or set env.output_root to another folder" if free < 1 else ""
    )


def _dotenv() -> Iterator[Check]:
    """Check that other users of the machine cannot read the keys in .env."""
    file = Path(".env")
    if file.is_file() and file.stat().st_mode & 0o077:
        yield warned("keys", ".env can be read by other users", "chmod 600 .env")


def _budget(config: Config, plan: Plan) -> Check:
    """Check the budget. A limit below the range in the plan fails: it would stop nearly every run. A limit inside the
    range gets a warning: it would stop some runs."""
    limits = [pair for pair in _limits(config, plan) if pair[1] is not None]
    if not limits and all(provider_of(config.role(role).model).is_free for role in roles_of(config)):
        return passed("budget", "no limit is set, and nothing costs money")
    if not limits:
        fix = "set budget.max_usd, budget.max_calls, budget.max_tokens or budget.max_minutes"
        return warned("budget", "no limit is set", fix)
    for status, edge in (("fail", "low"), ("warn", "high")):
        for name, limit, expected in limits:
            if limit is not None and getattr(expected, edge) > limit:
                low, high = expected.low, expected.high
                span = " to ".join(f"{edge:,.0f}" if edge >= 10 else f"{edge:.2f}" for edge in (low, high))
                says = f"budget.{name} is {limit:,.10g}, and the plan expects {span} (estimate)"
                fix = "raise the limit, or make the run smaller; a run that stops can continue with a larger limit"
                return Check(name="budget", status=status, says=says, fix=fix)  # type: ignore[arg-type]
    return passed("budget", "the plan stays within every limit (estimate)")


def _limits(config: Config, plan: Plan) -> Iterator[tuple[str, float | None, Estimate]]:
    budget = config.budget
    yield "max_calls", budget.max_calls, total(plan.calls(role) for role in plan.usd)
    yield "max_tokens", budget.max_tokens, total(plan.tokens[role] for role in plan.usd)
    yield "max_usd", budget.max_usd, total(each for each in plan.usd.values() if each)
    yield "max_minutes", budget.max_minutes, Estimate.around(plan.seconds.likely / 60)


async def scorer(env: Env, metric: str = "hard") -> Check:
    """Check the scorer: it must give an output the same score twice, and accept only the item's own answer."""
    if is_noisy(env):
        says = "a judge, or declared noisy: the same output may get different scores; the paired gate allows for this"
        return passed("scorer", says)
    unsure = []
    items = [item for split in SPLITS for item in env.items(split)[:_SCORED]]
    for item in items:
        for output in _outputs(item) if not env.scores_files else [""]:
            try:
                fault = await two_scores(env, item, output)
            except Exception as error:  # any error that the scorer raises is the finding
                says = f"raises {type(error).__name__} on item '{item.id}' for the output {output[:30]!r}: {error}"
                return failed("scorer", says, "change the scorer: it must return a score for any text")
            if fault:
                return failed("scorer", fault.says, fault.fix)
        if item.answers and (await score_output(env, item, item.answers[0])).hard < 1:
            unsure.append(item.id)
    if can_be_tried(env) and (finding := await scorer_finding(env, items, metric)):
        return Check(name="scorer", status="fail" if finding.certain else "warn", says=finding.says, fix=finding.fix)
    if unsure:
        says = f"the expected answers of these items score less than 1: {', '.join(unsure[:5])}"
        return warned("scorer", says, "check these items' answers and env.scoring")
    return passed("scorer", f"same score twice and no error on {len(items)} items")


def _outputs(item: Item) -> list[str]:
    return [*item.answers[:1], "", item.question, "\x00\n{[<é>]}\u202e", "word " * 20_000]


def _opens(config: Config, role: str) -> Check:
    """Check the name, URL and key of a role's model, without a call."""
    name = config.role(role).model
    try:
        model = open_model(role, config)
    except SkillOptError as error:
        return failed(f"{role} model", str(error), "see docs/providers.md")
    return passed(f"{role} model", f"{name} at {model.endpoint}")


async def endpoints(config: Config, env: Env | None = None) -> list[Check]:
    """Send a short request to the endpoint of each role. It shows whether the endpoint is reachable, the key is valid
    and the model exists, and whether the optimizer and the judge reply with JSON."""
    tries: dict[str, Callable[[Caller], Any]] = {"target": _answers, "optimizer": _fits_schema, "judge": _fits_schema}
    quick = config.model_copy(update={"hardware": config.hardware.model_copy(update={"max_retries": 2})})
    checks = []
    roles = [
        role
        for role in roles_of(config, env=env)
        if role in (*provider_of(config.role(role).model).probed_roles, "judge")
    ]
    async with open_models(quick, roles=roles) as models:
        for role in roles:
            with Journal(":memory:") as journal:
                callers, _, _ = make_callers(quick, journal, {role: models[role]})
                started = time.monotonic()
                try:
                    says, fix = await tries[role](callers[role])
                except SkillOptError as error:
                    checks.append(failed(f"{role} endpoint", str(error), "see docs/providers.md"))
                    continue
                says = f"answered in {time.monotonic() - started:.2f} s{says}"
                checks.append(warned(f"{role} endpoint", says, fix))
    return checks


async def _answers(caller: Caller) -> tuple[str, str]:
    reply = await caller([{"role": "user", "content": "Reply with the word ready."}], stage="doctor", label="doctor")
    if reply.text.strip():
        return "", ""
    return ", with an empty reply", "raise models.target_max_tokens, or lower the reasoning effort"


async def _fits_schema(caller: Caller) -> tuple[str, str]:
    messages: list[Message] = [
        {"role": "user", "content": 'Reply with a JSON object whose field "memory" is the word ready.'}
    ]
    answer = await ask(caller, messages, text_schema("meta_skill", "memory"), json.dumps, label="doctor")
    if answer.unreachable:
        raise TransientError(answer.lost)
    if answer.value is None:
        return f", but not with JSON: {answer.lost}", "choose another optimizer model: its replies must be JSON"
    if caller.form != "schema":
        return (
            ", without JSON schemas",
            "optional: use a model that supports JSON schemas; fewer of its replies are unusable",
        )
    return ", with a JSON schema", ""
