"""Configs as nested dicts: YAML files, their `_base_` files, overrides, and keys that moved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from skillopt.config.roles import overrule
from skillopt.errors import UserError
from skillopt.shipped import is_file, is_there, shipped

_MOVED = {f"train.{key}": f"optimizer.{key}" for key in ("lr_scheduler", "use_slow_update", "use_meta_skill")}
_GONE = {f"budget.{role}": "set budget.max_usd or budget.max_calls for both roles" for role in ("target", "optimizer")}
"""Keys of earlier versions, and what to do instead; a stored config may still have them, empty."""
_PATHS = ("train.init_skill", "gradient.prompts_dir", "env.split_dir", "env.data")
_CODE = ("env.name", "env.scoring", "env.agent")
"""`file.py:name`; the file may be next to the config."""
_DEEPEST, _MOST = 50, 200_000
"""Levels and values of a config; more is a mistake, or an alias that contains itself."""
_HALF = re.compile(r"[\ud800-\udfff]")


class Loader(yaml.SafeLoader):
    """PyYAML takes a time that grows with the square of the brackets that are open."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= _DEEPEST:
            raise yaml.scanner.ScannerError(None, None, "is nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(token)


def parse_yaml(text: str) -> Any:
    """YAML as plain values. Whatever is wrong with it is a ValueError: also a day that no month has, or no end."""
    try:
        value = yaml.load(text, Loader)  # noqa: S506 - a safe one
    except RecursionError:
        raise ValueError("is nested without end") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ValueError(yaml_trouble(error)) from error
    check_values(value)
    return value


def check_values(tree: Any) -> None:
    """Raise ValueError for what could not be written down again: no end, bytes, half a character."""
    waiting, seen = [(tree, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST:
            raise ValueError("is nested too deeply, or repeats itself without end")
        if isinstance(value, bytes) or (isinstance(value, str) and _HALF.search(value)):
            raise ValueError(f"{value!a:.60} is no text")
        if isinstance(value, Mapping):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple | set):
            waiting += [(part, depth + 1) for part in value]


def read_tree(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    path = shipped(path)
    if not is_file(path):
        raise UserError(f"{path}: no such config file")
    if path.resolve() in above:
        raise UserError(f"{path}: _base_ leads back to this file; remove the circle")
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8")) or {}
    except ValueError as error:
        raise UserError(f"{path}: not readable as YAML: {error}") from None
    if isinstance(tree, dict):
        tree = _short_forms(tree)
    if not isinstance(tree, dict) or not all(isinstance(v, dict) for k, v in tree.items() if k != "_base_"):
        raise UserError(f"{path}: a config is a list of sections, each with keys (train: {{num_epochs: 4}})")
    bases = tree.pop("_base_", None) or []
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise UserError(f"{path}: _base_: must be a file name or a list of them")
    merged: dict[str, Any] = {}
    for base in bases:
        _merge(merged, read_tree(path.parent / base, (*above, path.resolve())))
    _merge(merged, move_keys(_anchor_paths(tree, path.parent)))
    return merged


def yaml_trouble(error: Exception) -> str:
    """What and where, without the line itself: it may hold half a key, which nobody would find."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"a value that cannot be made ({type(error).__name__})"
    return f"{getattr(error, 'problem', '')} (line {mark.line + 1}, column {mark.column + 1})"


def _short_forms(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`trackers: [tensorboard]` for `trackers: {use: [tensorboard]}`."""
    named = tree.get("trackers")
    return {**tree, "trackers": {"use": named}} if isinstance(named, list) else dict(tree)


def _anchor_paths(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A relative path that exists next to the config means that file; else the working folder's or the package's."""
    for dotted in _PATHS:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        if isinstance(value, str) and value:
            tree[section][key] = _near(value, folder)
    options = tree.get("env", {}).get("agent_options")
    workspace = options.get("workspace") if isinstance(options, dict) else None
    if isinstance(options, dict) and isinstance(workspace, str) and workspace:
        tree["env"]["agent_options"] = {**options, "workspace": _near(workspace, folder)}
    command = tree.get("env", {}).get("command")
    words = command.split() if isinstance(command, str) else command
    if isinstance(words, list) and any(is_file(folder / str(word)) for word in words):
        tree["env"]["command"] = [str(folder / str(w)) if is_file(folder / str(w)) else str(w) for w in words]
    for dotted in _CODE:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        file, _, name = str(value or "").rpartition(":")
        if file.endswith(".py") and is_file(folder / file):
            tree[section][key] = f"{folder / file}:{name}"
    return tree


def _near(path: str, folder: Path) -> str:
    near = folder / path
    return str(near if is_there(near) else shipped(path))


def _merge(into: dict[str, Any], tree: Mapping[str, Any]) -> None:
    for key, value in tree.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def override(tree: dict[str, Any], text: str) -> None:
    dotted, equals, raw = text.partition("=")
    dotted = dotted.strip()
    keys = _MOVED.get(dotted, dotted).split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise UserError(f"'{text}': an override has the form section.key=value, such as train.batch_size=20")
    try:
        value = parse_yaml(raw)
    except ValueError as error:
        raise UserError(f"'{text}': the value is not readable: {error}") from None
    place = tree
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise UserError(f"'{text}': '{key}' has no keys below it")
    if ".".join(keys) in _PATHS and isinstance(value, str) and value:
        value = str(shipped(value))
    place[keys[-1]] = "" if raw == "" else value
    overrule(tree, ".".join(keys))


def name_command(tree: dict[str, Any]) -> dict[str, Any]:
    """A command line takes the target's place, and its name: prices, plans and reports then use that name."""
    env, models = tree.get("env"), tree.get("models", {})
    command = env.get("command") if isinstance(env, dict) else None
    words = command.split() if isinstance(command, str) else command
    if not words or not isinstance(words, list | tuple) or not isinstance(models, dict):
        return tree
    word = str(words[0])
    if not str(models.get("target_model", "")).startswith("command:"):
        tree["models"] = {**models, "target_model": f"command:{Path(word).name}"}
    return tree


def move_keys(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Accept the guide's names for keys that live in another section, and empty keys of earlier versions."""
    out = {name: dict(keys) if isinstance(keys, Mapping) else keys for name, keys in _short_forms(tree).items()}
    for gone, instead in _GONE.items():
        place, _, key = gone.partition(".")
        if isinstance(keys := out.get(place), dict) and key in keys:
            value = keys.pop(key)
            if not isinstance(value, Mapping) or any(limit is not None for limit in value.values()):
                raise UserError(f"{gone}: is no longer a key; {instead}")
    for old, new in _MOVED.items():
        (old_section, key), (new_section, _) = old.split("."), new.split(".")
        section, home = out.get(old_section), out.get(new_section, {})
        if isinstance(section, dict) and key in section and isinstance(home, dict):
            out[new_section] = {**home, key: section.pop(key)}
            if not section:
                del out[old_section]
    return out
