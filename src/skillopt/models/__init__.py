"""The frozen models, by name: `provider:model`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

from skillopt.cli_agents.presets import PRESETS
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatModel
from skillopt.run.directory import RunDirectory


def open_model(role: str, config: Config, run: RunDirectory | None = None) -> ChatModel:
    """The model of a role (`target` or `optimizer`). Nothing is called yet; names, URLs and keys are checked.

    A model that leaves files (`handoff`) leaves them in the `run`."""
    name: str = getattr(config.models, f"{role}_model")
    url: str = getattr(config.models, f"{role}_url")
    key_name: str = getattr(config.models, f"{role}_key_name")
    provider, colon, model = name.partition(":")
    if provider == "handoff":
        return _handoff(role, name, run)
    if provider in PRESETS or (provider == "command" and role == "optimizer"):
        from skillopt.models.command import open_command

        return open_command(role, name, config.models.optimizer_options)
    if role == "optimizer" and config.models.optimizer_options:
        raise UserError(f"models.optimizer_options: are for a command as the optimizer, and '{name}' is not a command")
    if colon and model and provider in PROVIDERS:
        return PROVIDERS[provider](name, model, url, key_name, config)
    if colon and model and _other(provider):
        from skillopt.models.providers import ProviderChat

        return ProviderChat(name, provider, model, url=url, key_name=key_name)
    known = ", ".join(sorted([*PROVIDERS, *OTHERS, *PRESETS, "handoff"]))
    raise UserError(f"models.{role}_model: '{name}' is not provider:model; the providers are: {known}")


def _other(provider: str) -> bool:
    """Is this one of the providers that a library connects to?"""
    if provider in OTHERS:
        return True
    if importlib.util.find_spec("pydantic_ai") is None:
        return False
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except ImportError:  # known, but a part of the library is missing; opening it says which
        return True
    except Exception:  # how the library says that it does not know the name is not part of its contract
        return False
    return True


def _handoff(role: str, name: str, run: RunDirectory | None) -> ChatModel:
    from skillopt.models.handoff import Box, HandoffModel
    from skillopt.models.handoff.box import letters_folder

    if role != "optimizer":
        raise UserError(
            f"models.{role}_model: '{name}' is for the optimizer and the judge; a target does every task of every "
            "split again for each skill: name a model or a command that does not learn from one task to the next"
        )
    return HandoffModel(Box(letters_folder(name, run), run.root.resolve().name) if run else None)


def _openai(name: str, model: str, url: str, key_name: str, config: Config) -> ChatModel:
    from skillopt.models.openai_chat import OpenAIChat

    own = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    return OpenAIChat(
        name,
        model,
        url=url or own,
        key_name=key_name or "OPENAI_API_KEY",
        key_needed=bool(key_name) or not url,
        limit_field="max_completion_tokens",
    )


def _vllm(name: str, model: str, url: str, key_name: str, config: Config) -> ChatModel:
    from skillopt.models.openai_chat import OpenAIChat

    url = url or config.hardware.vllm_url
    if not url:
        raise UserError(f"{name}: no URL; set hardware.vllm_url=http://127.0.0.1:8000/v1 or the role's own url")
    return OpenAIChat(name, model, url=url, key_name=key_name or "VLLM_API_KEY", key_needed=bool(key_name))


def _azure(name: str, model: str, url: str, key_name: str, config: Config) -> ChatModel:
    from skillopt.models import entra
    from skillopt.models.openai_chat import OpenAIChat

    root = url or config.hardware.azure_endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT", "")
    if not root:
        raise UserError(f"{name}: no endpoint; set hardware.azure_endpoint=https://<resource>.openai.azure.com")
    key_name = key_name or "AZURE_OPENAI_API_KEY"
    by_token = not os.environ.get(key_name) and entra.available()
    return OpenAIChat(
        name,
        model,
        url=f"{root.rstrip('/')}/openai/deployments/{model}",
        key_name=entra.TOKEN_NAME if by_token else key_name,
        key_needed=True,
        key_header="api-key",
        limit_field="max_completion_tokens",
        query={"api-version": config.hardware.azure_api_version},
        token=entra.EntraToken() if by_token else None,
    )


def _sim(name: str, model: str, url: str, key_name: str, config: Config) -> ChatModel:
    kind = model.partition("?")[0]
    if kind == "player":
        from skillopt.models.simulated_player import SimulatedPlayer

        return SimulatedPlayer(name)
    if kind == "clerk":
        from skillopt.models.simulated_clerk import SimulatedClerk

        return SimulatedClerk(name)
    from skillopt.models.simulated import SimulatedModel

    return SimulatedModel(name)


def _local(name: str, model: str, url: str, key_name: str, config: Config) -> ChatModel:
    from skillopt.models.local import LocalModel

    return LocalModel(name)


def _unseen(name: str, model: str, url: str, key_name: str, config: Config) -> ChatModel:
    """An agent that calls its model by itself."""
    from skillopt.models.bound import UnseenModel

    return UnseenModel(name)


PROVIDERS: dict[str, Callable[[str, str, str, str, Config], ChatModel]] = {
    "agent": _unseen,
    "azure": _azure,
    "command": _unseen,
    "local": _local,
    "openai": _openai,
    "sim": _sim,
    "vllm": _vllm,
}
OTHERS = (
    "anthropic", "bedrock", "cerebras", "cohere", "deepseek", "fireworks", "google", "groq", "huggingface", "mistral",
    "moonshotai", "ollama", "openrouter", "together", "xai",
)  # fmt: skip
"""The best known providers of pydantic-ai; any other that it knows by name works as well."""
