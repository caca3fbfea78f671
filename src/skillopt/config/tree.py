"""Reads a config into nested dicts. Merges a YAML file with its `_base_` files and overrides; accepts old key names."""

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
"""Old names of keys, with the new names. Old names still work; a warning shows the new name."""
_MOVED = {f"train.{key}": f"optimizer.{key}" for key in ("lr_scheduler", "use_slow_update", "use_meta_skill")}
_MOVED |= _RENAMED
_PATHS = ("train.init_skill", "gradient.prompts_dir", "env.split_dir", "env.data", "models.judge_calibration")
CALIBRATION = "judge_calibration.json"
"""Name of the file that `skillopt judge calibrate` writes next to the config."""
_CODE = ("env.name", "env.scoring", "env.agent")
"""Keys with values of the form `file.py:name`; the file may be next to the config."""
_DEEPEST, _MOST = 50, 200_000
"""The maximum number of levels of a config, and the maximum number of its values. A config with more is a mistake, or
has an alias that contains itself."""
_LONGEST_NUMBER = 100
"""The maximum number of characters of a number in a config."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_HALF = re.compile(r"[\ud800-\udfff]")


class Loader(yaml.SafeLoader):
    """A YAML loader that refuses deep nesting and long numbers, because PyYAML's time for them grows with the square of
    the depth or length. For YAML, `1:30:00` is a number, too (to the base 60)."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= _DEEPEST:
            raise yaml.scanner.ScannerError(None, None, "is nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(token)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return super().construct_scalar(node)


def parse_yaml(text: str) -> Any:
    """Parse YAML into plain values. Raises ValueError for any problem, such as an impossible date or endless
    nesting."""
    try:
        value = yaml.load(text, Loader)  # noqa: S506 - a safe one
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise ValueError(yaml_trouble(error)) from error
    check_values(value)
    return value


def check_values(tree: Any) -> None:
    """Raise ValueError for values that cannot be stored: bytes, half of a surrogate pair, or values nested without
    end."""
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
    """Return the values of a config file and, for keys that the file lacks, the values of its `_base_` files. `check`
    is a function that raises for a file that must not be read."""
    path = shipped(path)
    if check:
        check(path)
    if not is_file(path):
        raise UserError(f"{path}: no such config file; check the path")
    if path.resolve() in above:
        raise UserError(f"{path}: _base_ leads back to this file; remove the circle")
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8")) or {}
    except ValueError as error:
        raise UserError(f"{path}: not readable as YAML: {error}") from None
    if isinstance(tree, dict):
        tree = _short_forms(tree)
    if not isinstance(tree, dict) or not all(isinstance(v, dict) for k, v in tree.items() if k != "_base_"):
        raise UserError(f"{path}: a config must consist of sections, each with keys, such as train: {{num_epochs: 4}}")
    bases = tree.pop("_base_", None) or []
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise UserError(f"{path}: _base_: must be a file name or a list of file names")
    merged: dict[str, JsonValue] = {}
    for base in bases:
        _merge(merged, read_tree(path.parent / base, (*above, path.resolve()), check))
    renamed: Any = move_keys(tree)
    _merge(merged, _anchor_paths(renamed, path.parent))
    return merged


def add_calibration(tree: dict[str, JsonValue], folder: Path) -> None:
    """Add the path of the judge's calibration to a config that lacks it, if the file is next to the config."""
    env = tree.get("env")
    judged = isinstance(env, dict) and env.get("scoring") in {"judge", "by_task"}
    if judged and is_file(folder / CALIBRATION) and isinstance(models := tree.setdefault("models", {}), dict):
        models.setdefault("judge_calibration", str(folder / CALIBRATION))


def yaml_trouble(error: Exception) -> str:
    """The problem in a YAML file, and the problem's position. The text at this position is not shown: it may contain a
    part of a secret key, and redaction would not recognise a part."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"a value is not valid ({type(error).__name__})"
    return f"{getattr(error, 'problem', '')} (line {mark.line + 1}, column {mark.column + 1})"


def _short_forms(tree: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Replace the short form `trackers: [tensorboard]` by `trackers: {use: [tensorboard]}`."""
    named = tree.get("trackers")
    return {**tree, "trackers": {"use": named}} if isinstance(named, list) else dict(tree)


def _anchor_paths(tree: dict[str, dict[str, JsonValue]], folder: Path) -> dict[str, dict[str, JsonValue]]:
    """Resolve relative paths. Each is looked up next to the config, then in the working folder, then in the package."""
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
    """The words of a command line as a shell reads them; empty if the line cannot be parsed (a later check reports
    that)."""
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
    """The value of an override. For a key whose value is a text, only quotes around the text are removed, so
    `Answer: yes` stays a text. A command may also be a list. For any other key, the text is parsed as YAML."""
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
    """If a command line is the target, set `target_model` to the command's name, for prices, plans and reports."""
    env, models = tree.get("env"), tree.get("models", {})
    words = _words(env.get("command")) if isinstance(env, dict) else []
    if not words or not isinstance(models, dict):
        return tree
    word = str(words[0])
    if provider_of(str(models.get("target_model", ""))) is not COMMAND:
        tree["models"] = {**models, "target_model": f"{COMMAND.prefix}:{Path(word).name}"}
    return tree


def _say_renamed(old: str) -> None:
    """Warn if a key has an old name. If only its section is old (train.lr_scheduler), do not warn."""
    if old in _RENAMED:
        warnings.warn(f"{old} is now {_RENAMED[old]}", FutureWarning, stacklevel=3)


def move_keys(tree: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Rename keys with old names, and move keys to their section. Refuse retired keys whose value would change
    something."""
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
    """Replace the old key `regression_margin` by the floor `fall`."""
    if not isinstance(evaluation, dict) or "regression_margin" not in evaluation:
        return
    margin, floors = evaluation.pop("regression_margin"), evaluation.setdefault("floors", {})
    if margin is not None and isinstance(floors, dict):
        warnings.warn(
            f"evaluation.regression_margin is now evaluation.floors={{fall: {margin}}}", FutureWarning, stacklevel=4
        )
        floors.setdefault("fall", margin)
