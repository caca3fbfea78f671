"""The form made from the config's schema, and the YAML next to it. Only the server converts between them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from skillopt.config import Config
from skillopt.config.tree import Loader, parse_yaml
from skillopt.errors import UserError

_ERROR = re.compile(r"^config: (?:unknown (?:key|section) ')?([a-z_]+(?:\.[A-Za-z0-9_]+)*)'?:? ?(.*)$", re.DOTALL)
_PATH_KEYS = ("train.init_skill", "env.split_dir", "env.data", "gradient.prompts_dir")

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
"""For a folder without configs; the first needs neither a key nor data."""


def schema() -> list[dict[str, Any]]:
    """Sections with their fields: what each means, its kind, its default and its range."""
    whole = Config.model_json_schema()
    sections = []
    for name, reference in whole["properties"].items():
        fields = list(_fields(name, _resolved(reference, whole), whole))
        sections.append({"name": name, "fields": fields})
    return sections


def _fields(prefix: str, section: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, raw in section["properties"].items():
        field = _resolved(raw, whole)
        dotted = f"{prefix}.{key}"
        if "properties" in field:
            yield from _fields(dotted, field, whole)
            continue
        yield {
            "key": dotted,
            "doc": " ".join((raw.get("description") or field.get("description") or "").split()),
            "default": _default(dotted),
            **_kind(raw, whole),
        }


def _kind(raw: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """How a field is shown: text, number, switch, choice, or YAML for lists and tables; and whether null is a value."""
    options = [_resolved(option, whole) for option in raw.get("anyOf", [raw])]
    nullable = any(option.get("type") == "null" for option in options)
    real = [option for option in options if option.get("type") != "null"]
    field = real[0] if len(real) == 1 else {}
    limits = {
        name: field[key]
        for key, name in (
            ("minimum", "min"),
            ("maximum", "max"),
            ("exclusiveMinimum", "above"),
            ("exclusiveMaximum", "below"),
        )
        if key in field
    }
    if "enum" in field:
        return {"kind": "choice", "choices": field["enum"], "nullable": nullable}
    kinds = {"integer": "integer", "number": "number", "boolean": "switch", "string": "text"}
    return {"kind": kinds.get(field.get("type", ""), "yaml"), "nullable": nullable, **limits}


def _resolved(field: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """References followed; a field's own default and description stay with the caller's copy."""
    if "$ref" in field:
        found: Mapping[str, Any] = whole["$defs"][field["$ref"].rpartition("/")[2]]
        return found
    if len(field.get("allOf", [])) == 1:
        return _resolved(field["allOf"][0], whole)
    return field


def _default(dotted: str) -> Any:
    value: Any = Config().model_dump(mode="json")
    for key in dotted.split("."):
        value = value[key]
    return value


KINDS = {field["key"]: field for section in schema() for field in section["fields"]}


def load(path: Path, workspace: Path) -> str:
    """A config file as YAML text: its bases brought in, what equals the default left out."""
    config = Config.load(path)
    tree = config.model_dump(mode="json", exclude_defaults=True)
    for dotted in _PATH_KEYS:
        section, key = dotted.split(".")
        value = tree.get(section, {}).get(key)
        if value:
            tree[section][key] = _near(value, workspace)
    return dump(tree)


def _near(value: str, workspace: Path) -> str:
    """`configs/sim/../../data/x` as `data/x`."""
    path = Path(os.path.normpath(workspace / value))
    return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)


def dump(tree: Mapping[str, Any]) -> str:
    if not tree:
        return ""
    return yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True, width=100)


def check(text: str, changes: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The config after `changes` to single fields: its YAML, every field's value, and errors by field.

    A change is what was typed; null takes the key out again, so that the default holds. With changes, YAML that cannot
    be read stays as it is.
    """
    try:
        tree = _tree(text)
    except UserError as error:
        return {"yaml": text, "values": None, "errors": {}, "problem": str(error), "valid": False}
    if changes:
        for dotted, raw in changes.items():
            _set(tree, dotted, raw)
        text = dump(tree)
    errors, problem = _errors(tree)
    return {
        "yaml": text,
        "values": {dotted: _value(tree, dotted) for dotted in KINDS},
        "set": sorted(dotted for dotted in KINDS if _value(tree, dotted, missing=_MISSING) is not _MISSING),
        "errors": errors,
        "problem": problem,
        "valid": not errors and not problem,
    }


def parse(text: str) -> Config:
    return Config.parse(_tree(text))


def _tree(text: str) -> dict[str, Any]:
    if len(text) > 200_000:
        raise UserError("the config is longer than 200,000 characters")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=Loader)):
            raise UserError("aliases (*name) are not read here: a short text could expand to an endless one")
        tree = parse_yaml(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        cause = error.__cause__ or error
        mark = getattr(cause, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise UserError(f"{where}not readable as YAML: {getattr(cause, 'problem', None) or error}") from None
    if not isinstance(tree, dict):
        raise UserError("a config is a list of sections, each with keys (train: {num_epochs: 4})")
    if "_base_" in tree:
        raise UserError("_base_ is for config files; here the whole config is one text")
    return {str(name): dict(keys) if isinstance(keys, dict) else keys for name, keys in tree.items()}


def _errors(tree: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """By field, and what belongs to none."""
    try:
        Config.parse(tree)
    except UserError as error:
        errors: dict[str, str] = {}
        rest = []
        for part in re.split(r"\n(?=config: )", str(error)):
            found = _ERROR.match(part)
            place = _known(found[1]) if found else None
            if found and place:
                errors.setdefault(place, _said(part, place))
            else:
                rest.append(part.removeprefix("config: "))
        return errors, "\n".join(rest)
    return {}, ""


def _known(dotted: str) -> str | None:
    """The field that an error's place belongs to: the error may lie deeper."""
    parts = dotted.split(".")
    return next((".".join(parts[:n]) for n in range(len(parts), 1, -1) if ".".join(parts[:n]) in KINDS), None)


def _said(text: str, place: str) -> str:
    said = text.removeprefix("config: ").removeprefix(place).lstrip(":. ")
    return re.sub(r"^Input should be", "must be", said)


_MISSING = object()


def _value(tree: Mapping[str, Any], dotted: str, missing: Any = None) -> Any:
    """What the config says; else the default, or `missing`."""
    value: Any = tree
    for key in dotted.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return KINDS[dotted]["default"] if missing is None else missing
        value = value[key]
    return value


def _set(tree: dict[str, Any], dotted: str, raw: str | None) -> None:
    if dotted not in KINDS:
        raise UserError(f"unknown key '{dotted}'")
    *sections, key = dotted.split(".")
    place = tree
    for name in sections:
        below = place.get(name)
        if not isinstance(below, dict):
            below = place[name] = {}
        place = below
    if raw is None or (KINDS[dotted]["kind"] == "yaml" and not raw.strip()):
        place.pop(key, None)
    else:
        place[key] = _typed(KINDS[dotted], raw)
    for depth in range(len(sections), 0, -1):
        _drop_empty(tree, sections[:depth])


def _drop_empty(tree: dict[str, Any], path: list[str]) -> None:
    *above, name = path
    place: Any = tree
    for key in above:
        place = place.get(key, {})
    if place.get(name) == {}:
        del place[name]


def _typed(field: Mapping[str, Any], raw: str) -> Any:
    """What was typed as a value; what does not fit stays text, and the check says so."""
    if field["kind"] in {"text", "choice"}:
        return raw
    if raw.strip() == "" and field["nullable"]:
        return None
    try:
        return parse_yaml(raw)
    except ValueError:
        return raw
