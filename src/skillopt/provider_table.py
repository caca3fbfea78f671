"""The table of model providers, with one row per provider. To add a provider, add a row here and a line in
docs/providers.md; no other code looks at the prefix of a model's name.

This module imports only the standard library, because configs, records and commands read the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_LIBRARY = "skillopt.models.providers:open_provider"


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One provider of models. The defaults of the fields fit a network endpoint that bills by the token."""

    prefix: str
    """The part of the models' names before the colon, such as `openai`."""
    factory: str = _LIBRARY
    """`module:function` that makes the ChatModel from a ModelSpec (models/base.py); imported when it is needed."""
    families: str = ""
    """A regular expression that matches the beginning of the models' names. It is used for a hint if a config names a
    model without a provider."""
    roles: tuple[str, ...] = ("target", "optimizer")
    """The roles that the models can have."""
    role_hint: str = ""
    """The end of the error message about a model whose role in the config is not in `roles`."""
    needs_model: bool = True
    """False if the prefix alone names a model."""

    key_variable: str = ""
    """The environment variable that has the key; if empty, it is named after the prefix (`OPENAI_API_KEY` for
    `openai`)."""
    key_optional: bool = False
    """True if the models can be called without a key."""
    url: str = ""
    """The base URL; empty if the client library knows the URL, or if no URL is needed."""
    url_variable: str = ""
    """The environment variable whose value replaces the base URL."""
    url_setting: str = ""
    """The config key that has the base URL for all roles."""
    url_hint: str = ""
    """The error message if no base URL is set."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The parameter of the OpenAI chat protocol that limits the length of a reply."""

    is_local: bool = False
    """True if the models run on this machine, without an account."""
    has_weights: bool = False
    """True if a model is a file of weights, which is fetched before the first call."""
    is_simulated: bool = False
    """True if the models are part of the simulated world."""
    is_function: bool = False
    """True if a model is a Python function that a program passes in."""
    runs_program: bool = False
    """True if a call starts a program of the user."""
    path: Literal["", "file", "folder"] = ""
    """`file` or `folder` if a model's name may be the path of a file or folder; else empty."""
    takes_images: bool | None = None
    """True if the models take images; None if that depends on the model."""
    deterministic: bool | None = False
    """True if the same request always gets the same reply; None if each model declares whether this is so."""
    human_paced: bool = False
    """True if a reply may take hours, because a person writes it."""
    probed_roles: tuple[str, ...] = ("target", "optimizer")
    """The roles for which `skillopt doctor` sends a test request to the model."""
    call_timeout: float = 120.0
    """Seconds until a call without an answer is ended and retried, unless the config says otherwise."""
    max_concurrency: Callable[[], int] | None = None
    """A function that returns the maximum useful number of calls at the same time; None if only the config limits
    it."""

    cache_settings: tuple[str, ...] = ()
    """Settings of the client library that ask the endpoint to cache the beginning of requests (tools and system
    prompt). Empty if the endpoint caches without a setting, or has no cache."""
    cached_from: int = 0
    """The minimum number of tokens that the beginning of a request must have to be cached (some models need more); 0 if
    no cache is known."""
    warms_cache: bool = False
    """True if the beginning of requests is cached only after the first reply. Before this reply, each request would pay
    for writing the beginning into the cache, so the first request is sent alone."""

    price_list: str = ""
    """The provider's name in the package genai-prices; empty if that package does not have the prices."""
    is_free: bool = False
    """True if calls cost nothing."""
    reports_cost: bool = False
    """True if each reply reports its cost."""
    estimates_tokens: bool = False
    """True if tokens are estimated from the texts, because replies do not report them."""

    @property
    def key_name(self) -> str:
        return self.key_variable or f"{self.prefix.upper().replace('-', '_')}_API_KEY"


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_processes() -> int:
    """The number of requests that a model on this machine's CPU answers at the same time: one for each core that this
    process may use, but at most four, because each request needs a separate context in memory."""
    return min(cores(), 4)


AGENT = Provider(
    prefix="agent",
    factory="skillopt.models.bound:open_unseen",
    is_function=True,
    probed_roles=("optimizer",),  # the agent itself calls its models
)
COMMAND = Provider(
    prefix="command",
    factory="skillopt.models.command:open_command",
    needs_model=False,  # the factory checks the command's form
    runs_program=True,
    estimates_tokens=True,
    probed_roles=("optimizer",),
)
_ROWS = (
    AGENT,
    COMMAND,
    Provider(
        prefix="azure",
        factory="skillopt.models.openai_chat:open_azure",
        key_variable="AZURE_OPENAI_API_KEY",
        url_variable="AZURE_OPENAI_ENDPOINT",
        url_setting="hardware.azure_endpoint",
        url_hint="no endpoint; set hardware.azure_endpoint=https://<resource>.openai.azure.com",
        limit_field="max_completion_tokens",
        cached_from=1024,
        price_list="azure",
    ),
    Provider(
        prefix="handoff",
        factory="skillopt.models.handoff:open_handoff",
        roles=("optimizer",),
        role_hint="is for the optimizer and the judge. A target does the same tasks again for each skill: name a model "
        "or a command that does not learn from one task to the next",
        needs_model=False,
        path="folder",
        human_paced=True,
        probed_roles=(),
        is_free=True,
        estimates_tokens=True,
    ),
    Provider(
        prefix="local",
        factory="skillopt.models.local:open_local",
        is_local=True,
        takes_images=False,
        has_weights=True,
        path="file",
        deterministic=True,
        probed_roles=(),
        call_timeout=300.0,
        max_concurrency=local_processes,  # more calls at the same time would only wait
        is_free=True,
    ),
    Provider(
        prefix="openai",
        factory="skillopt.models.openai_chat:open_openai",
        families=r"(?:chat)?gpt-|o\d\b",
        url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        limit_field="max_completion_tokens",
        cached_from=1024,
        price_list="openai",
    ),
    Provider(
        prefix="sim",
        factory="skillopt.sim.model:open_sim",
        is_local=True,
        is_simulated=True,
        takes_images=False,
        deterministic=None,
        is_free=True,
    ),
    Provider(
        prefix="vllm",
        factory="skillopt.models.openai_chat:open_openai",
        key_optional=True,
        url_setting="hardware.vllm_url",
        url_hint="no URL; set hardware.vllm_url=http://127.0.0.1:8000/v1 or a role's URL, such as models.target_url",
    ),
    # The best known providers of pydantic-ai; all other providers that it knows by name also work.
    Provider(
        prefix="anthropic",
        families=r"claude-",
        cache_settings=("anthropic_cache_instructions", "anthropic_cache_tool_definitions"),
        cached_from=1024,
        warms_cache=True,
        price_list="anthropic",
    ),
    Provider(
        prefix="bedrock",
        cache_settings=("bedrock_cache_instructions", "bedrock_cache_tool_definitions"),
        cached_from=1024,
        warms_cache=True,
        price_list="aws",
    ),
    Provider(prefix="cerebras", price_list="cerebras"),
    Provider(prefix="cohere", families=r"command-", price_list="cohere"),
    Provider(prefix="deepseek", families=r"deepseek-", price_list="deepseek"),
    Provider(prefix="fireworks", price_list="fireworks"),
    Provider(prefix="google", families=r"gemini-", price_list="google"),
    Provider(prefix="groq", price_list="groq"),
    Provider(prefix="huggingface"),
    Provider(prefix="mistral", families=r"(?:mi|code|mini|magi|dev)stral|pixtral", price_list="mistral"),
    Provider(prefix="moonshotai", price_list="moonshotai"),
    Provider(prefix="ollama"),
    Provider(prefix="openrouter", price_list="openrouter"),
    Provider(prefix="together", price_list="together"),
    Provider(prefix="xai", families=r"grok-", price_list="x-ai"),
)
PROVIDERS: dict[str, Provider] = {row.prefix: row for row in _ROWS}
"""The rows of the table by prefix. Coding agents have no row: packages register them, and `provider_of` finds them."""


def split_name(name: str) -> tuple[str, str]:
    """Split a model's name into its provider's prefix and the rest."""
    prefix, _, model = name.partition(":")
    return prefix, model


def provider_of(name: str) -> Provider:
    """The provider of a model named `provider:model`: a row of the table, or a coding agent, or else a provider that
    only the client library knows."""
    prefix, _ = split_name(name)
    return PROVIDERS.get(prefix) or _agent(prefix) or Provider(prefix=prefix)


def program_of(name: str) -> Provider:
    """The provider of a model. A model that is the command of a coding agent (`command:codex`) has the provider of that
    agent."""
    row = provider_of(name)
    return (_agent(split_name(name)[1]) if row is COMMAND else None) or row


def _agent(name: str) -> Provider | None:
    from skillopt.processes.coding_agents import preset_of  # looks through the installed packages

    preset = preset_of(name)
    if preset is None:
        return None
    return Provider(
        prefix=name,
        factory=COMMAND.factory,
        roles=("optimizer",),
        role_hint="works as the optimizer or judge; to use it as the target, set env.command",
        needs_model=False,
        runs_program=True,
        reports_cost=preset.reports_cost,
        estimates_tokens=not preset.reports_tokens,
    )


def with_provider(name: str) -> str:
    """The full name `openai:gpt-4o-mini` for the name `openai/gpt-4o-mini`, and for `gpt-4o-mini` if a row's `families`
    matches this name; empty for any other name."""
    prefix, slash, model = name.partition("/")
    if slash and model and prefix in PROVIDERS:
        return f"{prefix}:{model}"
    families = [row for row in PROVIDERS.values() if row.families and ":" not in name]
    return next((f"{row.prefix}:{name}" for row in families if re.match(row.families, name)), "")


def path_of(name: str) -> str:
    """The path of a file or folder in a model's name; empty if the name has no path."""
    row, (_, model) = provider_of(name), split_name(name)
    return model if row.path == "folder" or (row.path == "file" and "/" in model) else ""
