"""The frozen models, by name: `provider:model`."""

from __future__ import annotations

import os
from collections.abc import Callable

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatModel


def open_model(role: str, config: Config) -> ChatModel:
    """The model of a role (`target` or `optimizer`). Nothing is called yet."""
    name: str = getattr(config.models, f"{role}_model")
    url: str = getattr(config.models, f"{role}_url")
    provider, colon, model = name.partition(":")
    if not colon or not model or provider not in PROVIDERS:
        raise UserError(
            f"models.{role}_model: '{name}' is not provider:model; the providers are: {', '.join(sorted(PROVIDERS))}"
        )
    return PROVIDERS[provider](name, model, url, config)


def _openai(name: str, model: str, url: str, config: Config) -> ChatModel:
    from skillopt.models.openai_chat import OpenAIChat

    own = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    return OpenAIChat(
        name, model, url=url or own, key_name="OPENAI_API_KEY", key_needed=not url, limit_field="max_completion_tokens"
    )


def _vllm(name: str, model: str, url: str, config: Config) -> ChatModel:
    from skillopt.models.openai_chat import OpenAIChat

    url = url or config.hardware.vllm_url
    if not url:
        raise UserError(f"{name}: no URL; set hardware.vllm_url=http://127.0.0.1:8000/v1 or the role's own url")
    return OpenAIChat(name, model, url=url, key_name="VLLM_API_KEY", key_needed=False)


def _azure(name: str, model: str, url: str, config: Config) -> ChatModel:
    from skillopt.models.openai_chat import OpenAIChat

    root = url or config.hardware.azure_endpoint
    if not root:
        raise UserError(f"{name}: no endpoint; set hardware.azure_endpoint=https://<resource>.openai.azure.com")
    return OpenAIChat(
        name,
        model,
        url=f"{root.rstrip('/')}/openai/deployments/{model}",
        key_name="AZURE_OPENAI_API_KEY",
        key_needed=True,
        key_header="api-key",
        limit_field="max_completion_tokens",
        query={"api-version": config.hardware.azure_api_version},
    )


def _sim(name: str, model: str, url: str, config: Config) -> ChatModel:
    from skillopt.models.simulated import SimulatedModel

    return SimulatedModel(name)


def _local(name: str, model: str, url: str, config: Config) -> ChatModel:
    from skillopt.models.local import LocalModel

    return LocalModel(name)


PROVIDERS: dict[str, Callable[[str, str, str, Config], ChatModel]] = {
    "azure": _azure,
    "local": _local,
    "openai": _openai,
    "sim": _sim,
    "vllm": _vllm,
}
