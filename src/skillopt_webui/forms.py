"""Makes the form from the config's schema, and converts between the form and YAML. (The browser does neither.)"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import ClassVar, Literal, Union, get_args, get_origin

import yaml
from pydantic import Field, JsonValue

from skillopt.config import Config
from skillopt.config.sections import Section
from skillopt.config.shipped import FOLDERS, ROOTS
from skillopt.config.tree import Loader, parse_yaml, read_tree
from skillopt.errors import UserError
from skillopt.record.base import Number, Record
from skillopt.record.run import Settings
from skillopt_webui.places import fits, readable
from skillopt_webui.settings import PageSettings

_ERROR = re.compile(r"^config: (?:unknown (?:key|section) ')?([a-z_]+(?:\.[A-Za-z0-9_]+)*)'?:? ?(.*)$", re.DOTALL)
_PATH_KEYS = ("train.init_skill", "env.split_dir", "env.data", "gradient.prompts_dir")
_SHIPPED = tuple((root / folder).resolve() for root in ROOTS for folder in FOLDERS)

_LONGEST = 200_000
"""The maximum number of characters of a config, or of one value."""
_DEEPEST = 50
"""The maximum depth of the lists and tables in a value. Anything deeper is shown as text."""

TEMPLATES = {
    "the simulated world": """\
train: {batch_size: 12}
models: {target_model: 'sim:world', optimizer_model: 'sim:world?duds=0.35'}
env: {name: sim, options: {rules: 20, train: 48, val: 40, test: 60}}
""",
    "questions with answers, one file": """\
train: {num_epochs: 2, batch_size: 20}
models: {target_model: 'openai:gpt-4o-mini', optimizer_model: 'openai:gpt-4o'}
env: {name: qa, benchmark: my-tasks, data: data/tasks.jsonl}
budget: {max_usd: 2}
""",
}
"""Configs to begin with if a folder has none. The first one needs neither an API key nor data."""


class FormField(Record):
    """A field of the form: its meaning, its kind of input, its default and its range."""

    optional: ClassVar = frozenset({"choices", "min", "max", "above", "below"})

    key: str
    doc: str
    default: JsonValue
    kind: str
    """The kind of input: `text`, `integer`, `number`, `switch`, `choice`, or `yaml` for lists and tables."""
    nullable: bool
    choices: list[JsonValue] | None = None
    min: Number | None = None
    max: Number | None = None
    above: Number | None = None
    below: Number | None = None


class FormSection(Record):
    name: str
    fields: list[FormField]


class CheckedConfig(Record):
    """A config: its YAML, every field's value, and errors by field."""

    optional: ClassVar = frozenset({"set"})

    yaml: str
    values: Settings | None = None
    set: list[str] | None = None
    """The fields that are in the YAML."""
    errors: dict[str, str] = Field(default={})
    problem: str = ""
    """Errors that belong to no field."""
    valid: bool = False


_KIND: dict[object, str] = {int: "integer", float: "number", bool: "switch", str: "text"}
_LIMITS = {"ge": "min", "le": "max", "gt": "above", "lt": "below"}


@cache
def schema() -> list[FormSection]:
    """The sections of the form. They are made from parsed source files, and only once: Python 3.11 cannot parse in two
    threads at the same time."""
    defaults = Config().model_dump(mode="json")
    return [FormSection(name=name, fields=list(_fields(name, type(keys), defaults[name]))) for name, keys in Config()]


def _fields(name: str, section: type[Section], defaults: Settings) -> Iterator[FormField]:
    meanings = section.meanings()
    for key, field in section.model_fields.items():
        options = (
            get_args(field.annotation) if get_origin(field.annotation) in {Union, UnionType} else [field.annotation]
        )
        real = [option for option in options if option is not NoneType]
        shown = real[0] if len(real) == 1 else None
        choices = list(get_args(shown)) if get_origin(shown) is Literal else None
        limits = {limit: getattr(part, limit) for part in field.metadata for limit in _LIMITS if hasattr(part, limit)}
        yield FormField(
            key=f"{name}.{key}",
            doc=" ".join(meanings.get(key, "").split()),
            default=defaults[key],
            kind="choice" if choices else _KIND.get(shown, "yaml"),
            nullable=len(real) < len(options),
            choices=choices,
            **{_LIMITS[limit]: value for limit, value in limits.items()},
        )


KINDS = {field.key: field for section in schema() for field in section.fields}


def read(path: Path, settings: PageSettings) -> Config:
    """Read a config file with its `_base_` files. Each of these files must be under the page's folders or be a part of
    SkillOpt."""

    def check(file: Path) -> None:
        if not fits(file, (*readable(settings), *_SHIPPED)):
            raise UserError(f"{file}: is outside of {settings.reach}")

    return Config.parse(read_tree(path, (), check), where=str(path))


def load(path: Path, settings: PageSettings) -> str:
    """A config file as YAML text. The text includes the values of `_base_` files, and leaves out values that equal the
    default."""
    tree = read(path, settings).model_dump(mode="json", exclude_defaults=True)
    for dotted in _PATH_KEYS:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        if value:
            tree[section][key] = _near(value, settings.workspace)
    return dump(tree)


def _near(value: str, workspace: Path) -> str:
    """A path, relative to the workspace if the path is inside the workspace: `configs/sim/../../data/x` becomes
    `data/x`."""
    path = Path(os.path.normpath(workspace / value))
    return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)


def dump(tree: Mapping[str, JsonValue]) -> str:
    if not tree:
        return ""
    return yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True, width=100)


def check(text: str, changes: Mapping[str, str | None] | None = None) -> CheckedConfig:
    """Change single fields of a config, then check it.

    A change is the text that the user typed, or None to remove the key, so that its default is used. If the YAML cannot
    be read, it is returned unchanged.
    """
    try:
        tree = _tree(text)
    except UserError as error:
        return CheckedConfig(yaml=text, problem=str(error))
    if changes:
        for dotted, raw in changes.items():
            _set(tree, dotted, raw)
        text = dump(tree)
    errors, problem = _errors(tree)
    written = {dotted: value for dotted in KINDS if (value := _value(tree, dotted)) is not _MISSING}
    return CheckedConfig(
        yaml=text,
        values={dotted: _as_json(written[dotted]) if dotted in written else KINDS[dotted].default for dotted in KINDS},
        set=sorted(written),
        errors=errors,
        problem=problem,
        valid=not errors and not problem,
    )


def _as_json(value: object, depth: int = 0) -> JsonValue:
    """Convert a value from YAML to JSON. If JSON has no such value, it becomes text."""
    if isinstance(value, dict | list) and depth < _DEEPEST:
        if isinstance(value, list):
            return [_as_json(below, depth + 1) for below in value]
        return {str(key): _as_json(below, depth + 1) for key, below in value.items()}
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value).encode("utf-8", "replace").decode()


def parse(text: str) -> Config:
    return Config.parse(_tree(text))


def _tree(text: str) -> Settings:
    if len(text) > _LONGEST:
        raise UserError(f"the config is longer than {_LONGEST:,} characters")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=Loader)):
            raise UserError(
                "aliases (*name) are not allowed here, because they can make a short text extremely long; repeat the "
                "value"
            )
        tree = parse_yaml(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        cause = error.__cause__ or error
        mark = getattr(cause, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise UserError(f"{where}not readable as YAML: {getattr(cause, 'problem', None) or error}") from None
    if not isinstance(tree, dict):
        raise UserError("this is not a config; write sections with keys, such as `train: {num_epochs: 4}`")
    if "_base_" in tree:
        raise UserError("_base_ works only in config files; write the whole config here")
    return {str(name): dict(keys) if isinstance(keys, dict) else keys for name, keys in tree.items()}


def _errors(tree: Settings) -> tuple[dict[str, str], str]:
    """The errors of a config by field, and the text of errors that belong to no field."""
    try:
        Config.parse(tree)
    except UserError as error:
        errors: dict[str, str] = {}
        rest = []
        for part in re.split(r"\n(?=config: )", str(error)):
            match = _ERROR.match(part)
            field = _field_of(match[1]) if match else None
            if field:
                message = part.removeprefix("config: ").removeprefix(field).lstrip(":. ")
                errors.setdefault(field, re.sub(r"^Input should be", "must be", message))
            else:
                rest.append(part.removeprefix("config: "))
        return errors, "\n".join(rest)
    return {}, ""


def _field_of(dotted: str) -> str | None:
    """The field to which an error belongs; None if there is no such field. `dotted` is the error's place, which may be
    deeper inside the field's value."""
    parts = dotted.split(".")
    return next((".".join(parts[:n]) for n in range(len(parts), 1, -1) if ".".join(parts[:n]) in KINDS), None)


_MISSING = object()


def _value(tree: Settings, dotted: str) -> object:
    """The config's value of a key, or `_MISSING`."""
    value: object = tree
    for key in dotted.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _set(tree: Settings, dotted: str, raw: str | None) -> None:
    """Set or remove a key. Sections that become empty are removed."""
    if dotted not in KINDS:
        raise UserError(f"unknown key '{dotted}'")
    if raw is not None and len(raw) > _LONGEST:
        raise UserError(f"{dotted}: is longer than {_LONGEST:,} characters")
    *sections, key = dotted.split(".")
    above, section = [], tree
    for name in sections:
        below = section.get(name)
        if not isinstance(below, dict):
            below = section[name] = {}
        above.append((section, name))
        section = below
    if raw is None or (KINDS[dotted].kind == "yaml" and not raw.strip()):
        section.pop(key, None)
    else:
        section[key] = _typed(KINDS[dotted], raw)
    for parent, name in reversed(above):
        if parent[name] == {}:
            del parent[name]


def _typed(field: FormField, raw: str) -> JsonValue:
    """The typed text as a value of the field's type. Text that does not fit the type is returned unchanged, and the
    check then reports the error."""
    if field.kind in {"text", "choice"}:
        return raw
    if raw.strip() == "" and field.nullable:
        return None
    try:
        value: JsonValue = parse_yaml(raw)
    except ValueError:
        return raw
    return value
