"""Opening the models of a run: each role's model with its limiter, on one journal and one budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from skillopt.config import Config
from skillopt.envs import open_env
from skillopt.envs.base import Env, check_splits, close_env
from skillopt.errors import UserError
from skillopt.models import open_model
from skillopt.models.base import ChatModel, NoModel
from skillopt.models.call import Budget, Caller, Endpoint, Limiter, Switch
from skillopt.run.directory import RunDirectory
from skillopt.run.journal import Journal
from skillopt.run.summary import ROLES


@asynccontextmanager
async def opened_env(config: Config, given: Env | None = None) -> AsyncIterator[Env]:
    """The config's env, checked, and closed at the end: its scorer may have processes. One that is given stays open."""
    name = config.models.target_model
    if given is None and name.startswith("agent:") and not config.env.agent and not config.env.command:
        function = name.removeprefix("agent:")
        raise UserError(
            f"{name}: the agent of this run is a Python function, which only the program that has it can pass on "
            f"(skillopt.compare(…, agent={function})); for a command, name its file: env.agent=FILE.py:{function}"
        )
    env = given or open_env(config)
    try:
        check_splits(env)
        yield env
    finally:
        if given is None:
            await asyncio.to_thread(close_env, env)


@asynccontextmanager
async def opened_models(
    config: Config,
    given: dict[str, ChatModel] | None = None,
    roles: Sequence[str] = ROLES,
    run: RunDirectory | None = None,
) -> AsyncIterator[dict[str, ChatModel]]:
    """A model for every role, closed at the end; a role that is not among `roles` has one that refuses every call.

    Nothing is called, but names, URLs and keys are checked.
    """
    async with AsyncExitStack() as stack:
        models: dict[str, ChatModel] = {}
        for role in ROLES:
            own: ChatModel = (given or {}).get(role) or open_model(role, config, run) if role in roles else NoModel()
            models[role] = own
            stack.push_async_callback(models[role].close)
        yield models


def make_callers(
    config: Config, journal: Journal, models: dict[str, ChatModel]
) -> tuple[dict[str, Caller], Budget, Switch]:
    """Each role's model with its limiter, on one journal and one budget."""
    budget, switch = Budget(config.budget, journal), Switch()
    endpoints: dict[str, Endpoint] = {}
    callers = {}
    for role, model in models.items():
        own = config.role(role)
        width = min(own.workers, getattr(model, "width", own.workers))  # some can handle only a few at once
        temperature: float | None = getattr(config.models, f"{role}_temperature")
        if model.endpoint in endpoints:
            endpoints[model.endpoint].widen(width)
        endpoint = endpoints.setdefault(model.endpoint, Endpoint(width))
        callers[role] = Caller(
            model=model,
            role=role,
            journal=journal,
            limiter=Limiter(
                width,
                endpoint,
                requests=getattr(config.models, f"{role}_rpm"),
                tokens=getattr(config.models, f"{role}_tpm"),
            ),
            budget=budget,
            switch=switch,
            hardware=config.hardware,
            workers=own.workers,
            timeout=own.call_timeout,
            deterministic=model.deterministic and not temperature if own.deterministic is None else own.deterministic,
            temperature=temperature,
            max_tokens=own.max_tokens,
            effort=getattr(config.models, f"{role}_reasoning_effort"),
        )
    return callers, budget, switch
