"""`skillopt.toml`: the skills of a repository, each with the config that measures it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, JsonValue, ValidationError

from skillopt.config.options import Options
from skillopt.errors import UserError

FILE = "skillopt.toml"


class Settings(Options):
    """How a skill is checked."""

    config: str = ""
    """YAML config with the tasks and the target."""
    margin: float | None = Field(default=None, ge=0, le=1)
    """How much lower the score may be."""
    budget: float | None = Field(default=None, gt=0)
    """Dollars that one check may spend."""
    max_items: int | None = Field(default=None, ge=1)
    """At most this many items."""
    split: str | None = None
    """train, val or test."""


def read_project(file: Path) -> dict[str, Settings]:
    """The skills by their paths (a Markdown file or a package's folder, relative to the file's own folder): `[check]`
    holds for all, `[skills."path"]` for one."""
    if not file.is_file():
        raise UserError(f"{file}: no such file; name a skill and a --config, or list the skills in a {FILE}")
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not readable as TOML: {error}") from None
    if unknown := sorted(set(tree) - {"check", "skills"}):
        raise UserError(f"{file}: unknown table '{unknown[0]}'; there are [check] and [skills.\"path\"]")
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
            raise UserError(f"{where}: has no config; say which YAML file measures it")
    del found[""]
    return found


def listed_path(skills: Mapping[str, Settings], folder: Path, wanted: Path) -> str | None:
    """The path by which a project in a folder lists a skill, which is named by its file or its folder."""
    wanted = wanted.resolve()
    for path in skills:
        place = (folder / path).resolve()
        if wanted in {place, place / "SKILL.md"} or wanted / "SKILL.md" == place:
            return path
    return None


def parse_settings(tree: Mapping[str, JsonValue], where: str) -> Settings:
    """Settings from values; an error names the problem and its place."""
    try:
        return Settings.model_validate(tree, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        known = f"; known are: {', '.join(Settings.model_fields)}"
        hint = known if first["type"] == "extra_forbidden" else f": {first['msg']}"
        raise UserError(f"{where}.{'.'.join(map(str, first['loc']))}{hint}") from None
