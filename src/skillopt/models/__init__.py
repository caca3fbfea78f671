"""Makes a model from its name, `provider:model`. provider_table.py has the facts about each provider."""

from __future__ import annotations

from importlib import import_module

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatModel, ModelSpec
from skillopt.processes.coding_agents import presets
from skillopt.provider_table import PROVIDERS, Provider, provider_of, split_name, with_provider
from skillopt.record.directory import RunDirectory


def open_model(role: str, config: Config, run: RunDirectory | None = None) -> ChatModel:
    """Make the model of a role (`target`, `optimizer` or `judge`). Checks names, URLs and keys, but sends no request.

    `run` is the run whose folder the model `handoff` uses for its files.
    """
    name = config.role(role).model
    provider = provider_of(name)
    if role == "judge" and (provider.human_paced or provider.runs_program):
        raise UserError(
            f"models.judge_model: '{name}' can judge only if it is also the optimizer; set models.optimizer_model to "
            "this name and leave models.judge_model empty, or set models.judge_model to a model that an endpoint serves"
        )
    if role not in provider.roles and not (role == "judge" and "optimizer" in provider.roles):
        raise UserError(f"models.{role}_model: '{name}' {provider.role_hint}")
    if role == "optimizer" and config.models.optimizer_options and not provider.runs_program:
        raise UserError(
            f"models.optimizer_options: these options are for a command, and the optimizer '{name}' is not a command; "
            "remove them"
        )
    if not _is_complete(name, provider):
        listed = ", ".join(sorted([*PROVIDERS, *presets()]))
        hint = f"did you mean '{full}'? The" if (full := with_provider(name)) else "the"
        raise UserError(
            f"models.{role}_model: '{name}' must have the form provider:model with a known provider; {hint} providers "
            f"are: {listed}"
        )
    module, _, function = provider.factory.partition(":")
    model: ChatModel = getattr(import_module(module), function)(
        ModelSpec(role=role, name=name, provider=provider, config=config, run=run)
    )
    return model


def _is_complete(name: str, provider: Provider) -> bool:
    """Does the name have the form `provider:model`, with a provider that exists?"""
    prefix, model = split_name(name)
    if provider.needs_model and not model:
        return False
    if prefix in PROVIDERS or provider.factory != Provider.factory:
        return True
    from skillopt.models.providers import library_knows

    return library_knows(prefix)


def endpoint_of(role: str, config: Config) -> tuple[str, str]:
    """The URL of a role's requests (empty: the provider's own URL), and the name of the environment variable with the
    key."""
    name = config.role(role).model
    spec = ModelSpec(role=role, name=name, provider=provider_of(name), config=config)
    return (spec.url or spec.shared_url).rstrip("/"), spec.key_name or spec.provider.key_name
