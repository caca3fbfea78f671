"""Reads `skillopt.toml`, which lists the skills of a repository and, for each skill, the config that measures it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, JsonValue, ValidationError

from skillopt.config.options import Options
from skillopt.errors import UserError

FILE = "skillopt.toml"


class Settings(Options):
    """The settings with which a skill is checked."""

    config: str = ""
    """YAML config with the tasks and the target."""
    margin: float | None = Field(default=None, ge=0, le=1)
    """The maximum drop of the score that a check allows (0 to 1)."""
    budget: float | None = Field(default=None, gt=0)
    """The maximum number of dollars that one check may spend."""
    max_items: int | None = Field(default=None, ge=1)
    """The maximum number of items that a check measures."""
    split: str | None = None
    """The split that a check measures: train, val or test."""


def read_project(file: Path) -> dict[str, Settings]:
    """The settings of each skill in `skillopt.toml`, by the skill's path (a Markdown file or a package's folder,
    relative to the toml file). `[check]` applies to all skills, `[skills."path"]` to one."""
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; give the path of a skill and its config (--config), or write a {FILE} with "
            "the skills"
        )
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not readable as TOML: {error}") from None
    if unknown := sorted(set(tree) - {"check", "skills"}):
        raise UserError(f"{file}: unknown table '{unknown[0]}'; use [check] and [skills.\"path\"]")
    shared, skills = tree.get("check", {}), tree.get("skills", {})
    if not isinstance(skills, dict) or not skills or not isinstance(shared, dict):
        raise UserError(f'{file}: lists no skill; add [skills."path/of/skill"] with a config')
    found = {}
    for path, own in {"": {}, **skills}.items():
        where = f"{file}: skills.{path}" if path else f"{file}: check"
        if not isinstance(own, dict):
            raise UserError(f'{where}: must be a table, such as {{config = "evals/config.yaml"}}')
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise UserError(f"{where}: must be a path below the folder of {file.name}")
        found[path] = parse_settings({**shared, **own}, where)
        if path and not found[path].config:
            raise UserError(f'{where}: has no config; add config = "PATH", the YAML file with its tasks and target')
    del found[""]
    return found


def listed_path(skills: Mapping[str, Settings], folder: Path, wanted: Path) -> str | None:
    """The path under which `skillopt.toml` lists a skill; None if the skill is not listed. `wanted` is the skill's file
    or folder."""
    wanted = wanted.resolve()
    for path in skills:
        place = (folder / path).resolve()
        if wanted in {place, place / "SKILL.md"} or wanted / "SKILL.md" == place:
            return path
    return None


def parse_settings(tree: Mapping[str, JsonValue], where: str) -> Settings:
    """Return the checked settings. An error names the problem and the key."""
    try:
        return Settings.model_validate(tree, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        known = f": unknown key; known are: {', '.join(Settings.model_fields)}"
        hint = known if first["type"] == "extra_forbidden" else f": {first['msg']}"
        raise UserError(f"{where}.{'.'.join(map(str, first['loc']))}{hint}") from None
