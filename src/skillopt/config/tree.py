"""Configs as nested dicts: YAML files, their `_base_` files, overrides, and keys that moved."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue

from skillopt.config.retired import FORMER_DEFAULTS, RETIRED
from skillopt.config.roles import flat_keys, flat_name, overrule
from skillopt.config.shipped import is_file, is_there, shipped
from skillopt.errors import UserError
from skillopt.provider_table import COMMAND, provider_of

_RENAMED = {
    "evaluation.gates": "evaluation.vetoes",
    "evaluation.eval_test": "evaluation.test",
    "evaluation.gate_metric": "evaluation.metric",
    "env.skill_init": "train.init_skill",
    "env.out_root": "env.output_root",
    "gradient.merge_batch_size": "gradient.merge_fan_in",
}
"""Names of an earlier version and of the original tool. They work, and a note says the name to use."""
_MOVED = {f"train.{key}": f"optimizer.{key}" for key in ("lr_scheduler", "use_slow_update", "use_meta_skill")}
_MOVED |= _RENAMED
_PATHS = ("train.init_skill", "gradient.prompts_dir", "env.split_dir", "env.data", "models.judge_calibration")
CALIBRATION = "judge_calibration.json"
"""Written by `skillopt judge calibrate` next to the config."""
_CODE = ("env.name", "env.scoring", "env.agent")
"""`file.py:name`; the file may be next to the config."""
_DEEPEST, _MOST = 50, 200_000
"""The most levels and values of a config; more is a mistake, or an alias that contains itself."""
_LONGEST_NUMBER = 100
"""Characters. Longer ones have no meaning in a config, and could be neither written down nor calculated with."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_HALF = re.compile(r"[\ud800-\udfff]")


class Loader(yaml.SafeLoader):
    """PyYAML takes a time that grows with the square of the brackets that are open, and of the length of a number
    (`1:30:00` is one, to the base of 60)."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= _DEEPEST:
            raise yaml.scanner.ScannerError(None, None, "is nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(token)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return super().construct_scalar(node)


def parse_yaml(text: str) -> Any:
    """YAML as plain values. Whatever is wrong with it is a ValueError: also a day that no month has, or no end."""
    try:
        value = yaml.load(text, Loader)  # noqa: S506 - a safe one
    except RecursionError:
        raise ValueError("is nested without end") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise ValueError(yaml_trouble(error)) from error
    check_values(value)
    return value


def check_values(tree: Any) -> None:
    """Raise ValueError for a value that cannot be stored: infinite, bytes, half a character."""
    waiting, seen = [(tree, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST:
            raise ValueError("is nested too deeply, or repeats itself without end")
        if isinstance(value, bytes) or (isinstance(value, str) and _HALF.search(value)):
            raise ValueError(f"{value!a:.60} is not text")
        if isinstance(value, Mapping):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple | set):
            waiting += [(part, depth + 1) for part in value]


def read_tree(path: Path, above: tuple[Path, ...], check: Callable[[Path], None] | None = None) -> dict[str, JsonValue]:
    """A file with its `_base_` files below it; `check` raises for a file that may not be read."""
    path = shipped(path)
    if check:
        check(path)
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
    merged: dict[str, JsonValue] = {}
    for base in bases:
        _merge(merged, read_tree(path.parent / base, (*above, path.resolve()), check))
    renamed: Any = move_keys(tree)
    _merge(merged, _anchor_paths(renamed, path.parent))
    return merged


def add_calibration(tree: dict[str, JsonValue], folder: Path) -> None:
    """The calibration of a judge that is next to its config."""
    env = tree.get("env")
    judged = isinstance(env, dict) and env.get("scoring") in {"judge", "by_task"}
    if judged and is_file(folder / CALIBRATION) and isinstance(models := tree.setdefault("models", {}), dict):
        models.setdefault("judge_calibration", str(folder / CALIBRATION))


def yaml_trouble(error: Exception) -> str:
    """The problem and its position, without the line itself: redaction would not recognise half a key in it."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"a value that cannot be made ({type(error).__name__})"
    return f"{getattr(error, 'problem', '')} (line {mark.line + 1}, column {mark.column + 1})"


def _short_forms(tree: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """`trackers: [tensorboard]` for `trackers: {use: [tensorboard]}`."""
    named = tree.get("trackers")
    return {**tree, "trackers": {"use": named}} if isinstance(named, list) else dict(tree)


def _anchor_paths(tree: dict[str, dict[str, JsonValue]], folder: Path) -> dict[str, dict[str, JsonValue]]:
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
    words = _words(tree.get("env", {}).get("command"))
    if any(is_file(folder / str(word)) for word in words):
        tree["env"]["command"] = [str(folder / str(w)) if is_file(folder / str(w)) else str(w) for w in words]
    for dotted in _CODE:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        file, _, name = str(value or "").rpartition(":")
        if file.endswith(".py") and is_file(folder / file):
            tree[section][key] = f"{folder / file}:{name}"
    return tree


def _words(command: Any) -> list[Any]:
    """The words of a command line as a shell reads them; none if it is not one, which `env.command` reports."""
    if not isinstance(command, str):
        return list(command) if isinstance(command, list | tuple) else []
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _near(path: str, folder: Path) -> str:
    near = folder / path
    return str(near if is_there(near) else shipped(path))


def _merge(into: dict[str, JsonValue], tree: Mapping[str, JsonValue]) -> None:
    for key, value in tree.items():
        below = into.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            _merge(below, value)
        else:
            into[key] = value


def override(tree: dict[str, JsonValue], text: str) -> None:
    dotted, equals, raw = text.partition("=")
    dotted = dotted.strip()
    if "." not in dotted:  # the original tool accepts its keys without their section
        dotted = next((key for key in (*_MOVED, *RETIRED) if key.rpartition(".")[2] == dotted), dotted)
    _say_renamed(dotted)
    keys = flat_name(_MOVED.get(dotted, dotted)).split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise UserError(f"'{text}': an override has the form section.key=value, such as train.batch_size=20")
    try:
        value = _override_value(keys, raw)
    except ValueError as error:
        raise UserError(f"'{text}': the value is not readable: {error}") from None
    section = tree
    for key in keys[:-1]:
        below = section.setdefault(key, {})
        if not isinstance(below, dict):
            raise UserError(f"'{text}': '{key}' has no keys below it")
        section = below
    if ".".join(keys) in _PATHS and isinstance(value, str) and value:
        value = str(shipped(value))
    section[keys[-1]] = "" if raw == "" else value
    overrule(tree, ".".join(keys))


def _override_value(keys: list[str], raw: str) -> Any:
    """A key whose values are texts takes the text as it is (`claude-code:`, `Answer: yes`), without quotes around it; a
    command may also be a list. Every other value is YAML."""
    from skillopt.config.config import Config

    section = Config.model_fields.get(keys[0])
    field = section.annotation.model_fields.get(keys[1]) if section and len(keys) == 2 else None  # type: ignore[union-attr]
    if field is None or field.annotation not in (str, str | list[str]):
        return parse_yaml(raw)
    try:
        value = parse_yaml(raw)
    except ValueError:
        return raw.strip()
    quoted = isinstance(value, str) and raw.strip()[:1] in {"'", '"'}
    return value if quoted or (isinstance(value, list) and field.annotation is not str) else raw.strip()


def name_command(tree: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A command line replaces the target: prices, plans and reports then use the command's name."""
    env, models = tree.get("env"), tree.get("models", {})
    words = _words(env.get("command")) if isinstance(env, dict) else []
    if not words or not isinstance(models, dict):
        return tree
    word = str(words[0])
    if provider_of(str(models.get("target_model", ""))) is not COMMAND:
        tree["models"] = {**models, "target_model": f"{COMMAND.prefix}:{Path(word).name}"}
    return tree


def _say_renamed(old: str) -> None:
    """Does a key have the guide's name (train.lr_scheduler)? That is as good as ours and needs no note."""
    if old in _RENAMED:
        warnings.warn(f"{old} is now {_RENAMED[old]}", FutureWarning, stacklevel=3)


def move_keys(tree: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Accept the guide's names for keys that live in another section; refuse retired keys that change something."""
    out = {name: dict(keys) if isinstance(keys, Mapping) else keys for name, keys in _short_forms(tree).items()}
    if isinstance(models := out.get("models"), dict):
        out["models"] = flat_keys(models)
    for dotted, instead in RETIRED.items():
        name, _, key = dotted.partition(".")
        if isinstance(section := out.get(name), dict) and key in section:
            value = section.pop(key)
            empty = isinstance(value, Mapping) and all(limit is None for limit in value.values())
            if not empty and (dotted not in FORMER_DEFAULTS or value != FORMER_DEFAULTS[dotted]):
                raise UserError(f"{dotted}: is no longer a key; {instead}")
    _to_floors(out.get("evaluation"))
    for old, new in _MOVED.items():
        (old_section, old_key), (new_section, new_key) = old.split("."), new.split(".")
        section, home = out.get(old_section), out.setdefault(new_section, {})
        if isinstance(section, dict) and old_key in section and isinstance(home, dict):
            value = section.pop(old_key)
            if value not in ("", [], None):
                _say_renamed(old)
            home[new_key] = value
    return out


def _to_floors(evaluation: JsonValue) -> None:
    """`regression_margin`, which is now a floor."""
    if not isinstance(evaluation, dict) or "regression_margin" not in evaluation:
        return
    margin, floors = evaluation.pop("regression_margin"), evaluation.setdefault("floors", {})
    if margin is not None and isinstance(floors, dict):
        warnings.warn(
            f"evaluation.regression_margin is now evaluation.floors={{fall: {margin}}}", FutureWarning, stacklevel=4
        )
        floors.setdefault("fall", margin)
