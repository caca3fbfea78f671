"""Configs as nested dicts: YAML files, their `_base_` files, overrides, and keys that moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from skillopt.errors import UserError
from skillopt.shipped import shipped

_MOVED = {f"train.{key}": f"optimizer.{key}" for key in ("lr_scheduler", "use_slow_update", "use_meta_skill")}
_PATHS = ("train.init_skill", "gradient.prompts_dir", "env.split_dir", "env.data")
_CODE = ("env.name", "env.scoring", "env.agent")
"""`file.py:name`, of which the file may lie beside the config."""


def read_tree(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    path = shipped(path)
    if path.resolve() in above:
        raise UserError(f"{path}: _base_ leads back to this file; remove the circle")
    if not path.is_file():
        raise UserError(f"{path}: no such config file")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable as YAML: {yaml_trouble(error)}") from None
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
        return type(error).__name__
    return f"{getattr(error, 'problem', '')} (line {mark.line + 1}, column {mark.column + 1})"


def _short_forms(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`trackers: [tensorboard]` for `trackers: {use: [tensorboard]}`."""
    named = tree.get("trackers")
    return {**tree, "trackers": {"use": named}} if isinstance(named, list) else dict(tree)


def _anchor_paths(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A relative path that exists beside the config means that file; else the working folder's or the package's."""
    for dotted in _PATHS:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        if isinstance(value, str) and value:
            beside = folder / value
            tree[section][key] = str(beside if beside.exists() else shipped(value))
    command = tree.get("env", {}).get("command")
    words = command.split() if isinstance(command, str) else command
    if isinstance(words, list) and any((folder / str(word)).is_file() for word in words):
        tree["env"]["command"] = [str(folder / str(w)) if (folder / str(w)).is_file() else str(w) for w in words]
    for dotted in _CODE:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        file, _, name = str(value or "").rpartition(":")
        if file.endswith(".py") and (folder / file).is_file():
            tree[section][key] = f"{folder / file}:{name}"
    return tree


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
        value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise UserError(f"'{text}': the value is not readable: {yaml_trouble(error)}") from None
    place = tree
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise UserError(f"'{text}': '{key}' has no keys below it")
    if ".".join(keys) in _PATHS and isinstance(value, str) and value:
        value = str(shipped(value))
    place[keys[-1]] = "" if raw == "" else value


def name_command(tree: dict[str, Any]) -> dict[str, Any]:
    """A command line takes the target's place, and its name: prices, plans and reports then speak of it."""
    env, models = tree.get("env"), tree.get("models", {})
    command = env.get("command") if isinstance(env, dict) else None
    if not command or not isinstance(models, dict):
        return tree
    word = command.split()[0] if isinstance(command, str) and command.split() else str(command[0])
    if not str(models.get("target_model", "")).startswith("command:"):
        tree["models"] = {**models, "target_model": f"command:{Path(word).name}"}
    return tree


def move_keys(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Accept the guide's names for keys that live in another section."""
    out = {name: dict(keys) if isinstance(keys, Mapping) else keys for name, keys in _short_forms(tree).items()}
    for old, new in _MOVED.items():
        (old_section, key), (new_section, _) = old.split("."), new.split(".")
        section = out.get(old_section)
        if isinstance(section, dict) and key in section:
            out.setdefault(new_section, {})[key] = section.pop(key)
            if not section:
                del out[old_section]
    return out
