"""Opens a training (models, journal, lock, folder), and closes everything again, even after an error."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from skillopt.config import Config
from skillopt.config.identity import asks_the_same
from skillopt.errors import UserError
from skillopt.models.base import ChatModel
from skillopt.models.call import Budget, Switch
from skillopt.models.prices import is_priced
from skillopt.record.damage import refuse_damage
from skillopt.record.directory import RunDirectory, is_private
from skillopt.record.events import Events, Listener, RepliesReused
from skillopt.record.files import write_atomic, write_json, write_jsonl
from skillopt.record.journal import Journal
from skillopt.record.package import keep_package
from skillopt.record.run_key import sibling_runs
from skillopt.record.state import State
from skillopt.skill import Skill
from skillopt.tasks.base import Env, is_noisy
from skillopt.tasks.executor import open_executor
from skillopt.tasks.scorer_check import refuse_two_scores
from skillopt.training import prompts
from skillopt.training.callers import make_callers, open_env, open_models
from skillopt.training.context import Context
from skillopt.training.gates.floors import check_floors
from skillopt.training.initial import given_feedback, initial_of, recorded_settings, run_key
from skillopt.training.parts import Parts, roles_of, why_optimizer
from skillopt.training.schedule import Schedule
from skillopt.version import METHOD, __version__

Mode = Literal["auto", "resume", "fresh", "separate"]
"""How to choose the run. `auto`: continue the run of this config; if there is none, extend the run that differs only in
having fewer epochs; else begin a new run. `resume`: continue or extend a run, but never begin one. `fresh`: always
begin a new run. `separate`: like `auto`, but never extend a run, so that trainings can be compared."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """An opened run: the objects that one process needs to train it."""

    ctx: Context
    journal: Journal
    budget: Budget
    switch: Switch
    initial_skill: Skill
    state: State | None
    """The run's state; None for a new run."""
    parts: Parts
    schedule: Schedule
    started: float


@asynccontextmanager
async def open_session(
    config: Config,
    *,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
    mode: Mode = "auto",
    parts: Parts,
    shared_journal: Path | None = None,
    initial_skill: Skill | None = None,
) -> AsyncIterator[Session]:
    """Open a run. Everything that can be checked without paying is checked before the run's lock is taken."""
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        opened_here = env is None
        env = await stack.enter_async_context(open_env(config, env))
        _check(config, env)
        skill = initial_skill or initial_of(config)
        schedule = parts.schedule_of(config, len(env.items("train")), skill)
        key, extend = run_key(config, env, skill, parts.passed_in), mode != "separate"
        earlier = key.find(extend=extend)
        begins = earlier is None or mode == "fresh"
        run = key.new() if earlier is None or mode == "fresh" else earlier
        if mode == "resume" and not run.state.exists():
            what = "no earlier run has this config, data and initial skill"
            raise UserError(f"{run.root}: there is no run to resume, because {what}; begin one without --resume")
        if not run.state.exists():
            await refuse_two_scores(env)
        source = _abandoned(earlier, config) if mode == "fresh" else None
        roles = roles_of(config, parts, env)
        try:
            opened = await stack.enter_async_context(open_models(config, models, roles, run))
        except UserError as error:
            if not (sentence := why_optimizer(config, parts, env)):
                raise
            raise UserError(f"{error}. {sentence}") from error
        executor = await stack.enter_async_context(open_executor(config, env, own=opened_here))
        with key.beginning(run, extend=extend) if begins and mode != "fresh" else nullcontext():
            stack.enter_context(run.held(private=is_private(config.env.private, config.env.output_root)))
        state = _read_state(run, config)
        refuse_damage(run)
        journal = stack.enter_context(Journal(run.journal, shared=shared_journal))
        events = stack.enter_context(Events(run.events, tuple(listeners)))
        if mode == "auto" and state is None and not journal.size:
            source = _scored_otherwise(run, config)
        if source and (taken := journal.adopt(source.journal)):
            events.emit(RepliesReused(path=str(source.root), replies=taken))
        _write_start(run, config, state, skill)
        callers, budget, switch = make_callers(config, journal, opened)
        ctx = Context(
            config=config,
            env=env,
            target=callers["target"],
            optimizer=callers["optimizer"],
            judge=callers.get("judge"),
            run=run,
            events=events,
            analysts=parts.analysts,
            executor=executor,
        )
        yield Session(
            ctx=ctx,
            journal=journal,
            budget=budget,
            switch=switch,
            initial_skill=skill,
            state=state,
            parts=parts,
            schedule=schedule,
            started=started,
        )


def _write_start(run: RunDirectory, config: Config, state: State | None, skill: Skill) -> None:
    """Write the config, people's comments and the initial skill's files into the run's folder."""
    if state is None or state.status != "finished":
        write_config(run, config)
    if state is None and (comments := given_feedback(config)):
        write_jsonl(run.feedback, comments)
    keep_package(config.train.init_skill, skill, run)


def write_config(run: RunDirectory, config: Config) -> None:
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_atomic(run.config_yaml, text)
    write_json(run.config_json, config.flat())


def _check(config: Config, env: Env) -> None:
    """Before any model is opened, raise an error for settings that do not fit each other or the env."""
    if is_noisy(env) and config.evaluation.gate == "strict":
        raise UserError(
            f"env '{env.name}': its scores are noisy, and a strict gate mistakes luck for progress; "
            "set evaluation.gate to paired"
        )
    prompts.check_folder(config.gradient.prompts_dir)
    check_prices(config)
    check_floors(config, env)


def _abandoned(older: RunDirectory | None, config: Config) -> RunDirectory | None:
    """The unfinished run that a fresh run replaces because the two runs have different methods. The fresh run uses the
    paid replies of the unfinished run again."""
    if older is None or not older.state.exists():
        return None
    state = State.read(older.state)
    return older if state.status != "finished" and method_of(state.pins) != method_of(pins(config)) else None


def _scored_otherwise(run: RunDirectory, config: Config) -> RunDirectory | None:
    """The newest run, apart from `run`, that sends the same requests: it differs from `run` only in its scorer, or in
    code and data that the config names. `run` uses the paid replies of this older run. A reply is looked up by its
    whole request, so a request never gets the reply to a different request."""
    runs = []
    for other in sibling_runs(run, config.train.seed):
        recorded = recorded_settings(other)
        same = other.root != run.root and other.journal.is_file() and asks_the_same(recorded, config.flat())
        if same and not other.irregular():
            runs.append(other)
    return max(runs, key=lambda other: other.journal.stat().st_mtime, default=None)


def pins(config: Config) -> dict[str, str]:
    """The version, the method and the prompts with which a run began. A run never continues with a different method."""
    return {"skillopt": __version__, "method": METHOD, "prompts": prompts.fingerprint(config.gradient.prompts_dir)}


def method_of(pinned: dict[str, str]) -> tuple[str, str]:
    return pinned.get("method", "1"), pinned.get("prompts", "")


def check_prices(config: Config, models: Sequence[str] = ()) -> None:
    """If the budget has a limit in dollars, check that the prices of `models` (default: of all roles) are known."""
    budget, named = config.budget, config.models
    for name in models or filter(None, (named.target_model, named.optimizer_model, named.judge_model)):
        if budget.max_usd is not None and not is_priced(name, budget.prices):
            raise UserError(
                f"budget.max_usd: the price of '{name}' is unknown, so the limit cannot be kept; give the price as "
                f'budget.prices={{"{name}": {{input: 2.5, output: 10}}}} (dollars per million tokens)'
            )


def _read_state(run: RunDirectory, config: Config) -> State | None:
    if not run.state.exists():
        return None
    state = State.read(run.state)
    extends = _extends(run, state, config.train.num_epochs)
    if (state.status == "finished" and not extends) or method_of(state.pins) == method_of(pins(config)):
        return state
    begun, verb = state.pins.get("skillopt", ""), "Extend" if extends else "Finish"
    how = f"by SkillOpt with other prompts. {verb} it with those prompts"
    if begun != __version__:
        how = f"by SkillOpt {begun}, which trains by another method. {verb} it with that version (pip install "
        how += f"skillopt=={begun})"
    raise UserError(
        f"{run.root}: this run was begun {how}, or start a new run with --fresh (paid replies are used again)"
    )


def _extends(run: RunDirectory, state: State, epochs: int) -> bool:
    """True if a training of `epochs` epochs extends the run. Raises an error if the run has more than `epochs` epochs,
    or if the run is unfinished and has fewer."""
    planned = state.phases[-1].epochs if state.phases else epochs
    if state.status != "finished" and epochs != planned:
        raise UserError(
            f"{run.root}: this run was begun with train.num_epochs={planned} and is not finished; finish it with that "
            f"value first, or start a separate run of {epochs} epochs with --fresh"
        )
    if epochs < planned:
        raise UserError(
            f"{run.root}: this run already has {planned} epochs, more than train.num_epochs={epochs}; start a separate "
            "run with --fresh"
        )
    return epochs > planned
