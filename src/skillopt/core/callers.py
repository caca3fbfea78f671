"""Opening the models of a run: each role's model with its limiter, on one journal and one budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from skillopt.config import Config
from skillopt.core.parts import Parts, resolve
from skillopt.envs.base import Env, close_env
from skillopt.models import open_model
from skillopt.models.base import ChatModel, NoModel
from skillopt.models.call import Budget, Caller, Endpoint, Limiter, Switch
from skillopt.run.directory import RunDirectory
from skillopt.run.journal import Journal
from skillopt.run.summary import ROLES


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
    config: Config,
    given: dict[str, ChatModel] | None = None,
    roles: Sequence[str] = ROLES,
    parts: Parts | None = None,
    run: RunDirectory | None = None,
) -> AsyncIterator[dict[str, ChatModel]]:
    """The roles' models, closed at the end. Nothing is called, but names, URLs and keys are checked."""
    async with AsyncExitStack() as stack:
        models: dict[str, ChatModel] = {}
        for role in roles:
            unused = role == "optimizer" and not needs_optimizer(config, parts)
            models[role] = (given or {}).get(role) or (NoModel() if unused else open_model(role, config, run))
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
