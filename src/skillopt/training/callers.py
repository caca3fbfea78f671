"""Opens the env and the models of a run, and gives all models one journal and one budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from skillopt import tasks
from skillopt.config import Config
from skillopt.config.roles import RoleSettings
from skillopt.errors import UserError
from skillopt.models import open_model
from skillopt.models.base import ChatModel, NoModel, as_chat_model
from skillopt.models.call import Budget, Caller, Endpoint, Limiter, Switch
from skillopt.provider_table import provider_of, split_name
from skillopt.record.base import ROLES
from skillopt.record.directory import RunDirectory
from skillopt.record.journal import Journal
from skillopt.tasks.base import Env, as_env, check_splits
from skillopt.training.judging import flips


@asynccontextmanager
async def open_env(config: Config, env: Env | None = None) -> AsyncIterator[Env]:
    """Open and check the config's env, and close it at the end, because its scorer may have started processes. An env
    that is passed in stays open."""
    name = config.models.target_model
    if env is None and provider_of(name).is_function and not config.env.agent and not config.env.command:
        function = split_name(name)[1]
        raise UserError(
            f"{name}: the agent of this run is a Python function, and the config does not say in which file; give the "
            f"function in your program (skillopt.compare(…, agent={function})), or set env.agent=FILE.py:{function}"
        )
    opened = as_env(env) if env else tasks.open_env(config)
    try:
        check_splits(opened)
        yield opened
    finally:
        if env is None:
            await asyncio.to_thread(opened.close)


@asynccontextmanager
async def open_models(
    config: Config,
    passed: dict[str, ChatModel] | None = None,
    roles: Sequence[str] = ROLES,
    run: RunDirectory | None = None,
) -> AsyncIterator[dict[str, ChatModel]]:
    """Open a model for every role; a role that is not in `roles` gets a model that refuses every call.

    Models in `passed` are used as they are, and stay open at the end. The other models are opened by their names, and
    closed at the end. No model is called, but names, URLs and keys are checked.
    """
    async with AsyncExitStack() as stack:
        models: dict[str, ChatModel] = {}
        for role in (*ROLES, *(["judge"] if "judge" in roles else [])):
            if role not in roles:
                models[role] = NoModel()
            elif passed and role in passed:
                models[role] = passed[role]
            else:
                models[role] = open_model(role, config, run)
                stack.push_async_callback(models[role].close)
        yield models


def make_callers(
    config: Config, journal: Journal, models: dict[str, ChatModel]
) -> tuple[dict[str, Caller], Budget, Switch]:
    """Combine each role's model with its limiter; all share one journal, one budget and one switch."""
    budget, switch = Budget(config.budget, journal), Switch()
    endpoints: dict[str, Endpoint] = {}
    callers = {}
    grader = "judge" if "judge" in models else "optimizer"
    for role, model in ((role, as_chat_model(model)) for role, model in models.items()):
        role_config = config.role(role)
        width = min(role_config.workers, model.max_concurrency or role_config.workers)
        if model.endpoint in endpoints:
            endpoints[model.endpoint].widen(width)
        endpoint = endpoints.setdefault(model.endpoint, Endpoint(width))
        callers[role] = Caller(
            model=model,
            role=role,
            journal=journal,
            limiter=Limiter(width, endpoint, requests=role_config.rpm, tokens=role_config.tpm),
            budget=budget,
            switch=switch,
            hardware=config.hardware,
            workers=role_config.workers,
            timeout=role_config.call_timeout,
            deterministic=_is_deterministic(model, role_config) and not (role == grader and flips(config)),
            temperature=role_config.temperature,
            max_tokens=role_config.max_tokens,
            effort=role_config.reasoning_effort,
        )
    return callers, budget, switch


def _is_deterministic(model: ChatModel, settings: RoleSettings) -> bool:
    """The config's value of `deterministic`. If the config does not set it, the result is True if the model is
    deterministic and the temperature is 0."""
    if settings.deterministic is not None:
        return settings.deterministic
    return model.deterministic and not settings.temperature
