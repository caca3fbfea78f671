"""Reads the arguments of `train`, `evaluate` and `compare`: config keys and sections, or objects that replace them.

In arguments such as `env`, `models`, `gate` and `scorer`, a dict is always a config section, a text is a config value,
and anything else is an object. No argument is ignored silently.
"""

from __future__ import annotations

import asyncio
import copy
import difflib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillopt import plugins
from skillopt.config import Config
from skillopt.config.roles import flat_keys, overrule
from skillopt.config.shipped import is_there, shipped
from skillopt.config.tree import override, read_tree
from skillopt.dotenv import load_dotenv
from skillopt.errors import UserError
from skillopt.provider_table import AGENT
from skillopt.skill import Skill

if TYPE_CHECKING:
    from skillopt.models.base import ChatModel
    from skillopt.tasks.agents import Function
    from skillopt.tasks.base import Env
    from skillopt.tasks.memory import ScorerFunction, Tasks

ROLES = ("target", "optimizer", "judge")
_FUNCTIONS = ("agent", "scoring")
"""Keys of the section `env` whose value may be a function."""
Keys = dict[str, Any]
KeysLike = Mapping[str, Any]
"""Config keys or sections, as a program passes them."""
Functions = dict[str, Callable[..., Any]]
PARTS = ("tasks", "scorer", "agent", "skill", "analysts", "gate", "vetoes", "schedule", "callbacks", "progress", "mode")
"""Arguments of `Trainer` that are not config keys."""
ConfigLike = Config | str | Path | KeysLike | Sequence[KeysLike] | None
"""A config, the path of a config file, or a dict of sections; a list is read as tasks."""
SkillLike = Skill | str | Path
"""A Skill, the text of a skill, its path, or one of the names `initial` and `best` (the skills of the config's run)."""
_PATH = re.compile(r"(?:~|\.{1,2})?/.*|\S*|.*\.(?:md|markdown|txt)")
"""Matches a string that looks like a path, not like the text of a skill: a single word, or a string that begins like a
path or ends like a file name."""


@dataclass(kw_only=True)
class Inputs:
    """The config, and the objects that were passed in because a config cannot contain them."""

    config: Config
    env: Env | None
    """The env that was passed in, or that was made from other arguments; None if the config alone defines the env."""
    models: dict[str, ChatModel]
    reopen: Callable[[], Env | None] | None
    """A function that opens the env again; None if the caller passed the env in (the caller then closes it)."""
    closed: bool = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the env open in this block. If the caller did not pass the env in, it is closed at the end of the block,
        and the next block opens it again."""
        if self.closed and self.reopen:
            self.env, self.closed = self.reopen(), False
        try:
            yield
        finally:
            if self.env and self.reopen:
                await asyncio.to_thread(self.env.close)
                self.closed = True


def read_inputs(
    config: ConfigLike,
    *,
    tasks: Tasks | None = None,
    scorer: ScorerFunction | str | None = None,
    agent: Function | str | None = None,
    env: Env | KeysLike | str | None = None,
    models: KeysLike | None = None,
    **keys: Any,
) -> Inputs:
    """Separate the arguments into a config and objects. If the config alone does not define the env, open the env; the
    caller must use it inside `async with inputs.open()`, which closes it. API keys are also read from the file
    `.env`."""
    from skillopt.tasks.base import as_env
    from skillopt.tasks.memory import own_env

    passed_in = env is not None and not isinstance(env, Mapping | str)
    load_dotenv(Path(".env"))
    if isinstance(config, Sequence) and not isinstance(config, str):
        if tasks is not None:
            raise UserError("tasks: are given twice, as the first argument and by name; give them once")
        config, tasks = None, config
    if isinstance(env, Mapping | str):
        _add(keys, "env", {"name": env} if isinstance(env, str) else env)
        env = None
    elif env is not None and not (hasattr(env, "items") and hasattr(env, "run")):
        raise UserError(f"env: {type(env).__name__} is neither an Env nor a dict of the section's keys")
    elif env is not None:
        env = as_env(env)
    opened = _models(keys, models)
    functions: Functions = {}
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
        loaded = loaded.with_values({"models.target_model": f"{AGENT.prefix}:{plugins.named(own_agent)}"})
    made = partial(own_env, loaded, env, tasks, functions.get("scoring"), own_agent)
    loaded, opened_env = made()
    return Inputs(config=loaded, env=opened_env, models=opened, reopen=None if passed_in else lambda: made()[1])


def _models(keys: Keys, models: KeysLike | None) -> dict[str, ChatModel]:
    """Return the ChatModels in `models` by role; add all other entries to the section `models` of `keys`."""
    if models is None:
        return {}
    if not isinstance(models, Mapping):
        raise UserError(
            'models: give a dict, either from roles to ChatModels ({"target": …}) or from keys to values '
            '({"target_model": "…"})'
        )
    opened = {role: model for role, model in models.items() if role in ROLES and not isinstance(model, str | Mapping)}
    for role, model in opened.items():
        if not hasattr(model, "chat"):
            raise UserError(f"models: {role}: {type(model).__name__} is not a ChatModel: it has no method 'chat'")
    if "judge" in opened and not models.get("judge_model"):
        models = {**models, "judge_model": opened["judge"].name}
    named = flat_keys({key: value for key, value in models.items() if key not in opened})
    named = {f"{key}_model" if key in ROLES else key: value for key, value in named.items()}
    if named:
        _add(keys, "models", named)
    return opened


def named_parts(keys: Keys, given: Mapping[str, tuple[str, Any]]) -> Keys:
    """Separate names and objects. `given` contains the config key and the value of each keyword. If the value is a
    name, add it to `keys`. Return the values that are objects, by keyword."""
    objects: Keys = {}
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


def _add(keys: Keys, section: str, values: KeysLike) -> None:
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    keys[section] = {**_section(keys.get(section, {}), section), **plain}


def _plain(tree: Any, functions: Functions) -> Any:
    """Return a config or keywords without `agent` and `scoring` if their values are functions; put these functions into
    `functions`. Both keys may be at the top or in the section `env`."""
    if not isinstance(tree, Mapping):
        return tree
    plain: Keys = {}
    for key, value in tree.items():
        if key == "env":
            plain[key] = _plain(value, functions)
        elif key in _FUNCTIONS and callable(value):
            functions[key] = value
        else:
            plain[key] = value
    return plain


def read_skill_input(skill: SkillLike, names: Sequence[str] = ()) -> Skill | str:
    """If `skill` is a Skill or the text of one, return a Skill. Otherwise return the name of a skill: an existing path,
    one of `names`, or RUN@3. A string is a text if it has several lines, or several words that do not look like a
    path."""
    if isinstance(skill, Skill):
        return skill
    if not isinstance(skill, str | Path):
        raise UserError(f"skill: {type(skill).__name__} is not a skill; give a Skill, the skill's text or its path")
    name = str(skill)
    there = is_there(shipped(name))
    if isinstance(skill, str) and ("\n" in name or not (there or _PATH.fullmatch(name))):
        return Skill(name)
    if there or not name or name in names or "@" in name:
        return name
    also = f", a name ({', '.join(names)})" if names else ""
    raise UserError(
        f"skill: '{name}' does not exist; give the path of a Markdown file or of a package's folder{also}, or the "
        "skill's text. If the text looks like a path, give skillopt.Skill(text)"
    )


# A config from code


def configure(config: ConfigLike = None, keys: KeysLike | None = None, overrides: Sequence[str] = ()) -> Config:
    """Return the config with the values of `keys` and `overrides`. Each of the `keys` is a config key (`num_epochs=2`)
    or a section (`budget={"max_usd": 5}`)."""
    where = "config"
    if isinstance(config, Config):
        tree: Keys = config.model_dump(mode="json", exclude_unset=True)
    elif isinstance(config, str | Path):
        tree, where = read_tree(Path(config), ()), str(config)
    elif config is not None and not isinstance(config, Mapping):
        raise UserError(
            f"config: {type(config).__name__} is neither a config (a file, a dict, a Config) nor a list of tasks"
        )
    else:
        pairs = (config or {}).items()
        tree = copy.deepcopy({name: dict(keys) if isinstance(keys, Mapping) else keys for name, keys in pairs})
    for name, value in (keys or {}).items():
        _place(tree, name, value)
    for text in overrides:
        override(tree, text)
    return Config.parse(tree, where=where)


def _place(tree: Keys, name: str, value: Any) -> None:
    if name in Config.model_fields:
        value = flat_keys(_section(value, name)) if name == "models" else _section(value, name)
        tree[name] = {**_section(tree.get(name, {}), name), **value}
        for key in value:
            overrule(tree, f"{name}.{key}")
        return
    if name == "model":
        from skillopt.provider_table import with_provider

        full = with_provider(str(value)) or value
        raise UserError(
            f"model: a run has two models; use target_model={full!r} for the model that does the tasks, or "
            f"optimizer_model={full!r} for the model that improves the skill"
        )
    homes = [section for section in Config.model_fields if section != "notes" and name in _keys(section)]
    if len(homes) != 1:
        choices = " or ".join(f"{section}={{{name!r}: …}}" for section in homes)
        hint = f"say which: {choices}" if homes else _nearest(name)
        raise UserError(f"{name}: {'is in several sections' if homes else 'is not a config key'}; {hint}")
    _add(tree, homes[0], {name: value})
    overrule(tree, f"{homes[0]}.{name}")


def _nearest(name: str) -> str:
    names = [*Config.model_fields, *PARTS, *(key for section in Config.model_fields for key in _keys(section))]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    every = "a keyword is a config key or section; docs/reference/config.md lists them"
    return f"did you mean '{near[0]}'?" if near else every


def _section(value: Any, name: str) -> KeysLike:
    if not isinstance(value, Mapping):
        raise UserError(f"{name}: is a section; give a dict of its keys")
    return value


def _keys(section: str) -> list[str]:
    return list(type(getattr(Config(), section)).model_fields)
