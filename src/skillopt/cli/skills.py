"""Finds the skills for `check` and `lint` (the skill that the user names, or all skills of skillopt.toml), and the
base of each skill."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.config.project import FILE, Settings, listed_path, read_project
from skillopt.config.shipped import is_file, shipped
from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.git import Repository
from skillopt.record.source import Source, in_commit, main_file, no_skill, on_disk
from skillopt.skill import FILE as PACKAGE

_OVERRIDE = re.compile(r"[a-z_]+\.[^=/\\]+=")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A skill, the base to compare it with, and the settings of its check."""

    name: str
    settings: Settings
    skill: Source
    """The skill's files. If the skill was removed, this is a source without a path."""
    base: Source

    @property
    def removed(self) -> bool:
        return not self.skill.path

    @property
    def changed(self) -> bool:
        """True if any file of the skill differs from the base."""
        return self.skill.files != self.base.files


def divide(words: Sequence[str] | None) -> tuple[str, list[str]]:
    """Divide the words of a command into the skill's name (empty if there is no name) and the overrides."""
    named = [word for word in words or () if not _OVERRIDE.match(word)]
    if len(named) > 1:
        raise UserError(f"'{named[1]}': the command takes only one skill; to use several, list them in {FILE}")
    return (named[0] if named else ""), [word for word in words or () if _OVERRIDE.match(word)]


def find_skills(named: str, project: Path, base: str, head: str) -> list[Found]:
    """Return the skill that `named` names, with its settings in skillopt.toml if it is listed there. If `named` is a
    folder of packages, return these packages. If `named` is empty, return all skills of skillopt.toml."""
    if named:
        skills = read_project(project) if project.is_file() else {}
        path = listed_path(skills, project.parent, Path(named))
        if path is None and (packages := _packages(Path(named))):
            return [_found(each, each, Settings(), Path(), base, head) for each in packages]
        if path is None:
            return [_found(named, named, Settings(), Path(), base, head)]
        return [_found(named, path, skills[path], project.parent, base, head)]
    skills = read_project(project)
    if len(skills) > 1 and _is_skill(base):
        raise UserError(
            f"--base {base}: is one skill, but {project} lists {len(skills)} skills; give the path of the "
            "skill that you want to compare with the base"
        )
    return [_found(path, path, settings, project.parent, base, head) for path, settings in skills.items()]


def _packages(folder: Path) -> list[str]:
    """The packages in a folder; none if the folder itself is a package or a run."""
    if (folder / PACKAGE).is_file() or RunDirectory(folder).config_json.exists():
        return []
    return [file.parent.as_posix() for file in sorted(folder.glob(f"*/{PACKAGE}"))]


def _found(name: str, path: str, settings: Settings, folder: Path, base: str, head: str) -> Found:
    place = folder / path
    skill: Source | None
    if head:
        repository = _repository(folder, place)
        skill = in_commit(repository, repository.commit(head), repository.inside(place), head) or no_skill()
    else:
        skill = on_disk(shipped(place), _shown(shipped(place)))
    return Found(name=name, settings=settings, skill=skill, base=_base(place, folder, base))


def _base(place: Path, folder: Path, base: str) -> Source:
    if base == "none":
        return no_skill()
    if _is_skill(base):
        return on_disk(shipped(base), where=base)
    repository = _repository(folder, place)
    commit = repository.commit(base)
    found = in_commit(repository, commit, repository.inside(place), base)
    return found or Source(path="", where=f"no skill: it is not in {base} ({commit[:7]})")


def _repository(folder: Path, place: Path) -> Repository:
    """Return the git repository that contains the project's folder, or else the one that contains the skill."""
    try:
        return Repository.around(folder)
    except UserError:
        if not place.parent.is_dir():
            raise
        return Repository.around(place.parent)


def _is_skill(base: str) -> bool:
    return base != "none" and is_file(main_file(shipped(base)))


def _shown(place: Path) -> str:
    """The path of a skill's main file. If the file is in a git repository, the path is relative to the repository."""
    main = main_file(place)
    try:
        return Repository.around(main.parent).inside(main)
    except UserError:
        return main.as_posix()
