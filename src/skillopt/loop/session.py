"""Opening a training: models, journal, lock and folder around a context; closing them again whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from skillopt import prompts
from skillopt.config import Config
from skillopt.envs import open_env
from skillopt.envs.base import Env, check_splits, close_env, data_hash, is_noisy
from skillopt.errors import UserError
from skillopt.executor import open_executor
from skillopt.keys import refuse_secrets
from skillopt.loop.context import Context
from skillopt.loop.parts import Parts, resolve
from skillopt.models import open_model
from skillopt.models.base import ChatModel, NoModel
from skillopt.models.call import Budget, Caller, Endpoint, Limiter, Switch
from skillopt.models.prices import price_of
from skillopt.run.damage import config_text
from skillopt.run.directory import RunDirectory, is_private
from skillopt.run.events import Events, Listener
from skillopt.run.files import write_atomic, write_json
from skillopt.run.journal import Journal
from skillopt.run.mend import mend
from skillopt.run.open import find_run, run_name
from skillopt.run.package import keep_package, open_package, package_file, package_hash, read_skill
from skillopt.run.state import State
from skillopt.run.summary import ROLES
from skillopt.shipped import shipped
from skillopt.skill import Skill
from skillopt.version import __version__

Mode = Literal["auto", "resume", "fresh"]
"""auto: go on where an unfinished run of this config stands, else begin; resume: only go on; fresh: begin another."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One process's work on a run."""

    ctx: Context
    journal: Journal
    budget: Budget
    switch: Switch
    initial_skill: Skill
    state: State | None
    """Where the run stands; None for a new one."""
    started: float

    def base(self, steps: int) -> Context:
        """The context outside of any step, for a run of so many steps."""
        return replace(self.ctx, steps=steps)


@asynccontextmanager
async def closing_env(env: Env, wanted: bool = True) -> AsyncIterator[None]:
    """Whoever opened an env closes it: its scorer may have processes of its own."""
    try:
        yield
    finally:
        if wanted:
            await asyncio.to_thread(close_env, env)


@asynccontextmanager
async def opened_models(
    config: Config, given: dict[str, ChatModel] | None = None, roles: Sequence[str] = ROLES, parts: Parts | None = None
) -> AsyncIterator[dict[str, ChatModel]]:
    """The roles' models, closed at the end. Nothing is called, but names, URLs and keys are checked."""
    async with AsyncExitStack() as stack:
        models: dict[str, ChatModel] = {}
        for role in roles:
            unused = role == "optimizer" and not needs_optimizer(config, parts)
            models[role] = (given or {}).get(role) or (NoModel() if unused else open_model(role, config))
            stack.push_async_callback(models[role].close)
        yield models


def make_callers(
    config: Config, journal: Journal, models: dict[str, ChatModel]
) -> tuple[dict[str, Caller], Budget, Switch]:
    """Each role's model with its limiter, on one journal and one budget."""
    budget, switch = Budget(config.budget, journal), Switch()
    widths = {"target": config.hardware.workers, "optimizer": config.gradient.analyst_workers}
    endpoints: dict[str, Endpoint] = {}
    callers = {}
    for role, model in models.items():
        declared: bool | None = getattr(config.models, f"{role}_deterministic")
        temperature: float | None = getattr(config.models, f"{role}_temperature")
        if model.endpoint in endpoints:
            endpoints[model.endpoint].widen(widths[role])
        endpoint = endpoints.setdefault(model.endpoint, Endpoint(widths[role]))
        callers[role] = Caller(
            model=model,
            role=role,
            journal=journal,
            limiter=Limiter(
                widths[role],
                endpoint,
                requests=getattr(config.models, f"{role}_rpm"),
                tokens=getattr(config.models, f"{role}_tpm"),
            ),
            budget=budget,
            switch=switch,
            hardware=config.hardware,
            deterministic=model.deterministic and not temperature if declared is None else declared,
            temperature=temperature,
            max_tokens=getattr(config.models, f"{role}_max_tokens"),
            effort=getattr(config.models, f"{role}_reasoning_effort"),
        )
    return callers, budget, switch


@asynccontextmanager
async def open_session(
    config: Config,
    *,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
    mode: Mode = "auto",
    parts: Parts | None = None,
    shared_journal: Path | None = None,
    initial_skill: Skill | None = None,
) -> AsyncIterator[Session]:
    """Check everything that can be checked without paying, then take the run's lock."""
    opened_here = env is None
    env = env or open_env(config)
    check_splits(env)
    parts = parts or resolve(config)
    if is_noisy(env) and config.evaluation.gate != "paired":
        raise UserError(
            f"env '{env.name}': its scores are noisy, and a strict gate takes luck for progress; "
            "set evaluation.gate to paired"
        )
    prompts.check_folder(config.gradient.prompts_dir)
    check_prices(config)
    skill = initial_skill or initial_of(config)
    run = run_of(config, env, skill, fresh=mode == "fresh", parts=parts)
    if mode == "resume" and not run.state.exists():
        raise UserError(f"{run.root}: no such run to resume; the config, the data or the initial skill differ from it")
    started = time.monotonic()
    async with (
        opened_models(config, models, parts=parts) as opened,
        closing_env(env, opened_here),
        open_executor(config, env, own=opened_here) as executor,
        AsyncExitStack() as stack,
    ):
        stack.enter_context(run.held(private=is_private(config.env.private, config.env.output_root)))
        mended = mend(run)
        journal = stack.enter_context(Journal(run.journal, shared=shared_journal))
        with Events(run.events, tuple(listeners)) as events:
            state = _read_state(run, config)
            if mended:
                events.emit("mended", files=mended)
            _write_config(run, config)
            keep_package(config.train.init_skill, run)
            callers, budget, switch = make_callers(config, journal, opened)
            target, optimizer = callers["target"], callers["optimizer"]
            ctx = Context(
                config=config, env=env, target=target, optimizer=optimizer, run=run, events=events, parts=parts
            )
            yield Session(
                ctx=replace(ctx, executor=executor),
                journal=journal,
                budget=budget,
                switch=switch,
                initial_skill=skill,
                state=state,
                started=started,
            )


def run_of(
    config: Config, env: Env, initial_skill: Skill, *, fresh: bool = False, parts: Parts | None = None
) -> RunDirectory:
    """The run that this config, data and initial skill make; there may be nothing in it yet."""
    identity = {"config": config.identity(), "data": data_hash(env), "initial_skill": initial_skill.hash}
    if config.gradient.prompts_dir:
        identity["prompts"] = prompts.fingerprint(config.gradient.prompts_dir)
    if parts and parts.passed_in:
        identity["parts"] = dict(parts.passed_in)
    if package := package_hash(config.train.init_skill):
        identity["package"] = package
    return find_run(config.env.output_root, env.name, run_name(config.train.seed, identity), fresh=fresh)


def needs_optimizer(config: Config, parts: Parts | None = None) -> bool:
    """Analysts may do without an LLM; notes and guidance are always written by one."""
    slow_update = config.optimizer.use_slow_update and config.train.num_epochs > 1
    analysts = (parts or resolve(config)).analysts
    consulted = "llm" in {config.gradient.merge, config.gradient.rank} or config.optimizer.use_meta_skill
    return slow_update or consulted or judged(config) or any(analyst.needs_optimizer for analyst in analysts)


def judged(config: Config) -> bool:
    """Is the optimizer model asked for scores?"""
    return config.env.scoring == "judge"


def measuring_roles(config: Config) -> Sequence[str]:
    """The models that a measurement needs, outside of a training."""
    return ROLES if judged(config) else ("target",)


def pins(config: Config) -> dict[str, str]:
    """What a run may not silently go on under another of."""
    return {"skillopt": __version__, "prompts": prompts.fingerprint(config.gradient.prompts_dir)}


def check_prices(config: Config) -> None:
    """A limit in money needs every price."""
    budget = config.budget
    for role, name in (("target", config.models.target_model), ("optimizer", config.models.optimizer_model)):
        limits = {"max_usd": budget.max_usd, f"{role}.max_usd": getattr(budget, role).max_usd}
        limit = next((key for key, value in limits.items() if value is not None), None)
        if limit and price_of(name, budget.prices) is None:
            raise UserError(
                f"budget.{limit}: the price of '{name}' is unknown, so the limit could not hold; give it as "
                f'budget.prices={{"{name}": {{input: 2.5, output: 10}}}} (dollars for a million tokens)'
            )


def initial_of(config: Config) -> Skill:
    """The skill that a training starts from: the file's, or where the trigger is trained, its package's description."""
    skill = read_initial(config.train.init_skill)
    file = package_file(config.train.init_skill) if config.train.init_skill else None
    if config.env.name != "trigger":
        return skill
    if file is None:
        raise UserError("train.init_skill: a description is trained in its package; name the package's SKILL.md")
    return Skill(open_package(file).description)


def read_initial(path: str) -> Skill:
    """The skill to start from; an empty path or an empty file is an empty skill."""
    if not path:
        return Skill("")
    file = shipped(path)
    if not file.is_file() and package_file(file) is None:
        raise UserError(f"train.init_skill: '{path}' does not exist; give an existing file, or leave it empty")
    try:
        skill = read_skill(file)
    except UnicodeDecodeError:
        raise UserError(f"train.init_skill: '{path}' is not UTF-8 text") from None
    refuse_secrets(skill.text, f"train.init_skill: '{path}'")
    return skill


def initial_kind(path: str, skill: Skill) -> str:
    """empty; pretrained (it lies in a run's folder); or seed."""
    if not skill.text.strip():
        return "empty"
    near = Path(path).resolve().parent
    trained = any((folder / "patch_log.jsonl").exists() for folder in (near, near.parent))
    return "pretrained" if trained else "seed"


def _read_state(run: RunDirectory, config: Config) -> State | None:
    if not run.state.exists():
        return None
    state = State.read(run.state)
    for what, now in pins(config).items():
        then = state.pins.get(what)
        if then != now and state.status != "finished":
            raise UserError(
                f"{run.root}: was begun with another {what} ({str(then)[:12]}, now {now[:12]}); going on would mix two "
                "methods: start another run with --fresh"
            )
    return state


def _write_config(run: RunDirectory, config: Config) -> None:
    tree: dict[str, Any] = config.model_dump(mode="json")
    write_atomic(run.config_yaml, config_text(tree))
    write_json(run.config_json, config.flat())
