"""A config from code: a file, a dict, a Config or nothing, and keywords on top."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt.config.config import Config
from skillopt.config.roles import overrule
from skillopt.config.tree import override, read_tree
from skillopt.errors import UserError

PARTS = ("tasks", "scorer", "agent", "skill", "analysts", "gate", "gates", "schedule", "callbacks", "progress", "mode")
"""What a program may pass in place of what the config names (`Trainer`)."""
ConfigLike = Config | str | Path | Mapping[str, Any] | None


def configure(
    config: ConfigLike = None, keys: Mapping[str, Any] | None = None, overrides: Sequence[str] = ()
) -> Config:
    """The config with keywords on top: a key (`num_epochs=2`) or a section of keys (`budget={"max_usd": 5}`)."""
    where = "config"
    if isinstance(config, Config):
        tree: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    elif isinstance(config, str | Path):
        tree, where = read_tree(Path(config), ()), str(config)
    else:
        known = (config or {}).items()
        tree = copy.deepcopy({name: dict(keys) if isinstance(keys, Mapping) else keys for name, keys in known})
    for name, value in (keys or {}).items():
        _place(tree, name, value)
    for text in overrides:
        override(tree, text)
    return Config.parse(tree, where=where)


def _place(tree: dict[str, Any], name: str, value: Any) -> None:
    if name in Config.model_fields:
        if not isinstance(value, Mapping):
            raise UserError(f"{name}: is a section; give a dict of its keys")
        _section(tree, name).update(value)
        for key in value:
            overrule(tree, f"{name}.{key}")
        return
    homes = [section for section in Config.model_fields if section != "notes" and name in _keys(section)]
    if len(homes) != 1:
        given = " or ".join(f"{section}={{{name!r}: …}}" for section in homes)
        hint = f"say which: {given}" if homes else _nearest(name)
        raise UserError(f"{name}: {'is in several sections' if homes else 'is no config key'}; {hint}")
    _section(tree, homes[0])[name] = str(value) if isinstance(value, Path) else value
    overrule(tree, f"{homes[0]}.{name}")


def _nearest(name: str) -> str:
    known = [*Config.model_fields, *PARTS, *(key for section in Config.model_fields for key in _keys(section))]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    every = "a keyword is a config key or section; docs/reference/config.md has all"
    return f"did you mean '{near[0]}'?" if near else every


def _section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    section = tree.setdefault(name, {})
    if not isinstance(section, dict):
        raise UserError(f"{name}: is a section; give a dict of its keys")
    return section


def _keys(section: str) -> list[str]:
    return list(type(getattr(Config(), section)).model_fields)
