"""Finds the settings of the model in a role, such as the maximum length of a reply.

`models.targets` and `models.optimizers` contain settings that are only used for certain models or providers. These
settings override the config file's keys for all models (`models.target_max_tokens`, `hardware.workers`), but not values
from the command line or from a caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import JsonValue

from skillopt.provider_table import provider_of, split_name

if TYPE_CHECKING:
    from skillopt.config.config import Config
    from skillopt.config.sections import ModelSettings

T = TypeVar("T")
_TABLES = {"target": "targets", "optimizer": "optimizers"}
_ROLES = (*_TABLES, "judge")
_OVERRULES = {
    **{
        f"models.{role}_{key}": ((table, key),)
        for role, table in _TABLES.items()
        for key in ("max_tokens", "deterministic")
    },
    "hardware.workers": (("targets", "workers"),),
    "gradient.analyst_workers": (("optimizers", "workers"),),
    "hardware.call_timeout": (("targets", "call_timeout"), ("optimizers", "call_timeout")),
}
"""For each key that applies to all models: the settings in `targets` and `optimizers` that are removed if the command
line or a caller overrides the key."""


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """The effective settings of the model in one role."""

    model: str
    """The model as `provider:model`."""
    url: str
    """Base URL of the endpoint; empty: the provider's usual URL."""
    key_name: str
    """The environment variable with the API key; empty: the provider's usual variable."""
    temperature: float | None
    reasoning_effort: str
    rpm: int | None
    tpm: int | None
    max_tokens: int
    """The maximum number of tokens of one reply."""
    workers: int
    """The maximum number of calls at the same time."""
    call_timeout: float
    """Seconds until a call without an answer is ended and retried."""
    deterministic: bool | None
    """True if the same request always gets the same reply. None: as the model itself declares."""


def role_settings(config: Config, role: str) -> RoleSettings:
    keys = vars(config.models)
    name: str = keys[f"{role}_model"]
    provider = provider_of(name)
    settings: dict[str, Any] = {field.name: keys.get(f"{role}_{field.name}") for field in fields(RoleSettings)} | {
        "workers": _workers(config, role),
        "call_timeout": config.hardware.call_timeout or provider.call_timeout,
    }
    tables: dict[str, Mapping[str, ModelSettings]]
    tables = {"target": config.models.targets, "optimizer": config.models.optimizers}
    settings |= _said_of(name, {key: vars(entry) for key, entry in tables.get(role, {}).items()})
    if provider.max_concurrency:
        settings["workers"] = min(settings["workers"], provider.max_concurrency())
    return RoleSettings(**settings)


def _workers(config: Config, role: str) -> int:
    if role == "judge":
        return config.models.judge_workers
    return config.hardware.workers if role == "target" else config.gradient.analyst_workers


def flat_keys(models: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The section `models` in its stored form: `{target: {max_tokens: 20}}` becomes `{target_max_tokens: 20}`."""
    flat: dict[str, JsonValue] = {}
    for key, value in models.items():
        if key in _ROLES and isinstance(value, dict):
            flat |= {f"{key}_{name}": below for name, below in value.items()}
        else:
            flat[key] = value
    return flat


def flat_name(dotted: str) -> str:
    """A dotted key in its stored form: `models.target.max_tokens` becomes `models.target_max_tokens`."""
    section, _, rest = dotted.partition(".")
    role, dot, key = rest.partition(".")
    return f"{section}.{role}_{key}" if section == "models" and role in _ROLES and dot else dotted


def in_use(flat: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a flat config as its target and its optimizer use it. Settings of `targets` and `optimizers` for these two
    models replace the keys for all models."""
    found = dict(flat)
    for role, table in _TABLES.items():
        entries = cast("dict[str, dict[str, JsonValue]]", found.pop(f"models.{table}", None) or {})
        said = _said_of(str(flat.get(f"models.{role}_model")), entries)
        keys = ((f"models.{role}_{key}", value) for key, value in said.items())
        found |= {key: value for key, value in keys if key in flat}
    return found


def _said_of(name: str, table: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The settings that a table has for a model. Settings for the model itself override settings for its provider."""
    found: dict[str, T] = {}
    for key in (split_name(name)[0], name.partition("?")[0], name):
        found |= {field: value for field, value in table.get(key, {}).items() if value is not None}
    return found


def overrule(tree: Mapping[str, JsonValue], dotted: str) -> None:
    """Remove the entries of `targets` and `optimizers` that would hide an override of the key `dotted`."""
    models = tree.get("models")
    for table, field in _OVERRULES.get(dotted, ()):
        entries = models.get(table) if isinstance(models, Mapping) else None
        for entry in entries.values() if isinstance(entries, Mapping) else ():
            if isinstance(entry, dict):
                entry.pop(field, None)
