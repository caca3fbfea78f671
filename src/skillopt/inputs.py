"""What a program passes to `train`, `evaluate` and `compare`: config keys and sections, or objects in their place.

`env`, `models`, `gate`, `scorer` and others may be either. A dict is always a config section, a text always a config
value, anything else an object; nothing is left out silently.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillopt import plugins
from skillopt.config import Config
from skillopt.config.roles import overrule
from skillopt.config.tree import override, read_tree
from skillopt.errors import UserError

if TYPE_CHECKING:
    from skillopt.envs.agents import Function
    from skillopt.envs.base import Env
    from skillopt.envs.memory import Scorer, Tasks
    from skillopt.models.base import ChatModel

ROLES = ("target", "optimizer")
_FUNCTIONS = ("agent", "scoring")
"""Keys of the section `env` whose value may be a function."""
Keys = dict[str, Any]
PARTS = ("tasks", "scorer", "agent", "skill", "analysts", "gate", "gates", "schedule", "callbacks", "progress", "mode")
"""What a program may pass in place of what the config names (`Trainer`)."""
ConfigLike = Config | str | Path | Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The config with everything that it can hold, and the objects that it cannot."""

    config: Config
    env: Env | None
    """None where the config alone makes it."""
    models: dict[str, ChatModel]


def read_inputs(
    config: ConfigLike,
    keys: Keys,
    *,
    tasks: Tasks | None = None,
    scorer: Scorer | str | None = None,
    agent: Function | str | None = None,
    env: Env | Mapping[str, Any] | str | None = None,
    models: Mapping[str, Any] | None = None,
) -> Inputs:
    """Sort what was passed in, then open what has to be open to know the run."""
    from skillopt.envs.memory import own_env

    keys = dict(keys)
    if isinstance(env, Mapping | str):
        _add(keys, "env", {"name": env} if isinstance(env, str) else env)
        env = None
    elif env is not None and not (hasattr(env, "items") and hasattr(env, "run")):
        raise UserError(f"env: {type(env).__name__} is neither an Env nor a dict of the section's keys")
    opened = _models(keys, models)
    functions: dict[str, Any] = {}
    config = _plain(config, functions)
    keys = _plain(keys, functions)
    for name, key, part in (("scorer", "scoring", scorer), ("agent", "agent", agent)):
        if isinstance(part, str):
            _add(keys, "env", {key: part})
            functions.pop(key, None)
        elif callable(part):
            functions[key] = part
        elif part is not None:
            raise UserError(f"{name}: {part!r} is neither a function nor the name of one")
    loaded = configure(config, keys)
    own_agent = functions.get("agent")
    if own_agent and "target" not in opened and "target_model" not in loaded.models.model_fields_set:
        loaded = loaded.with_values({"models.target_model": f"agent:{plugins.named(own_agent)}"})
    loaded, own = own_env(loaded, env, tasks, functions.get("scoring"), own_agent)
    return Inputs(config=loaded, env=own, models=opened)


def _models(keys: Keys, models: Mapping[str, Any] | None) -> dict[str, ChatModel]:
    """The objects by role; every other entry is a key of the section `models`."""
    if models is None:
        return {}
    if not isinstance(models, Mapping):
        raise UserError('models: give a dict: ChatModels by role ({"target": …}), or keys ({"target_model": "…"})')
    opened = {role: model for role, model in models.items() if role in ROLES and not isinstance(model, str)}
    for role, model in opened.items():
        if not hasattr(model, "chat"):
            raise UserError(f"models: {role}: {type(model).__name__} is no ChatModel: it has no method chat")
    named = {f"{key}_model" if key in ROLES else key: value for key, value in models.items() if key not in opened}
    if named:
        _add(keys, "models", named)
    return opened


def named_parts(keys: Keys, given: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Parts by keyword, each with the config key that a text means; texts go into the config, objects come back."""
    objects: dict[str, Any] = {}
    for name, (dotted, value) in given.items():
        section, _, key = dotted.partition(".")
        several = isinstance(value, Sequence) and not isinstance(value, str)
        if isinstance(value, Mapping) and name == section:
            _add(keys, section, value)
        elif isinstance(value, str) or (several and value and all(isinstance(each, str) for each in value)):
            plural = isinstance(getattr(getattr(Config(), section), key), tuple)
            _add(keys, section, {key: [value] if plural and isinstance(value, str) else value})
        else:
            objects[name] = value
            continue
        objects[name] = () if several or name == "trackers" else None
    return objects


def _add(keys: Keys, section: str, values: Mapping[str, Any]) -> None:
    known = keys.get(section, {})
    if not isinstance(known, Mapping):
        raise UserError(f"{section}: is a section; give a dict of its keys")
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    keys[section] = {**known, **plain}


def _plain(tree: Any, functions: dict[str, Any]) -> Any:
    """A config or keywords without the functions that are given for `env.agent` and `env.scoring`, or for short as
    `scoring`; these go into `functions`."""
    if not isinstance(tree, Mapping):
        return tree
    plain: dict[str, Any] = {}
    for key, value in tree.items():
        if key == "env":
            plain[key] = _plain(value, functions)
        elif key in _FUNCTIONS and callable(value):
            functions[key] = value
        else:
            plain[key] = value
    return plain


# A config from code


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
