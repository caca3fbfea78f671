"""What belongs to a model and not to a task: how long it may reply, how many calls at once, whether it repeats itself.

`models.targets` and `models.optimizers` say it for a model or a provider, so that another `--target_model` on the same
file does not take over what was written for the one before. They count before the keys of the file that hold for every
model (`models.target_max_tokens`, `hardware.workers`), and after what a command or a caller overrides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillopt.config.config import Config

_TABLES = {"target": "targets", "optimizer": "optimizers"}
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
"""Keys that hold for every model, and what of the tables they replace when they are overridden."""


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """The settings of one role's model, as they are used."""

    max_tokens: int
    """Of one reply."""
    workers: int
    """Calls in flight."""
    call_timeout: float
    """Seconds until a call without an answer is ended and retried."""
    deterministic: bool | None
    """None: what the model says of itself."""


def role_settings(config: Config, role: str) -> RoleSettings:
    models, name = config.models, str(getattr(config.models, f"{role}_model"))
    table = models.targets if role == "target" else models.optimizers
    own = {
        "max_tokens": getattr(models, f"{role}_max_tokens"),
        "deterministic": getattr(models, f"{role}_deterministic"),
        "workers": config.hardware.workers if role == "target" else config.gradient.analyst_workers,
        "call_timeout": config.hardware.call_timeout or (300.0 if name.startswith("local:") else 120.0),
    }
    found = own | _said_of(name, {key: vars(entry) for key, entry in table.items()})
    if name.startswith("local:"):  # it would only keep more of them waiting
        found["workers"] = min(found["workers"], local_processes())
    return RoleSettings(**found)


def in_use(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A flat config with what the tables say in place of the keys that hold for every model."""
    found = dict(flat)
    for role, table in _TABLES.items():
        said = _said_of(str(flat.get(f"models.{role}_model")), found.pop(f"models.{table}", None) or {})
        keys = ((f"models.{role}_{key}", value) for key, value in said.items())
        found |= {key: value for key, value in keys if key in flat}
    return found


def _said_of(name: str, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a table says of a model: of its provider, then of itself, which counts more."""
    found: dict[str, Any] = {}
    for key in (name.partition(":")[0], name.partition("?")[0], name):
        found |= {field: value for field, value in table.get(key, {}).items() if value is not None}
    return found


def overrule(tree: Mapping[str, Any], dotted: str) -> None:
    """A key that is overridden counts before what the tables say."""
    models = tree.get("models")
    for table, field in _OVERRULES.get(dotted, ()):
        entries = models.get(table) if isinstance(models, Mapping) else None
        for entry in entries.values() if isinstance(entries, Mapping) else ():
            if isinstance(entry, dict):
                entry.pop(field, None)


def local_processes() -> int:
    """How many requests a model on this machine's CPU answers at once: one for each core that this process may use, up
    to four, since each has a separate context in memory."""
    return min(cores(), 4)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
