"""Reads a skill from disk or from a commit: one file or a package's folder."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from skillopt.errors import UserError
from skillopt.keys import refuse_secrets, secrets
from skillopt.record.directory import best_in
from skillopt.record.git import Repository
from skillopt.skill import FILE, Skill
from skillopt.skill.folder import listed, name_clash, path_problem
from skillopt.skill.package import Package, PackageError, read_package

_LONGEST = 1_000_000
"""The maximum number of bytes of a main document."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One version of a skill: its main document and the other files of its package."""

    path: str
    """The path of the main document as git names it, such as `skills/triage/SKILL.md`; empty for no skill."""
    where: str
    """The origin of this version in words, such as `the working tree`, `origin/main (1a2b3c4)` or `no skill`."""
    main: str = ""
    """The name of the main document in `files`."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The contents of the package's files, by path. For a plain file, the only entry is this file."""
    executable: frozenset[str] = frozenset()
    """The paths of the executable files."""
    folder: str = ""
    """The name of the package's folder; empty for a plain file."""
    near: Callable[[str], bool] = lambda _: False
    """For a plain file: a function that returns True if a file with the given name is next to it."""

    @property
    def is_package(self) -> bool:
        return bool(self.folder)

    @property
    def document(self) -> Package:
        return read_package(self.text)

    @cached_property
    def text(self) -> str:
        content = self.files[self.main] if self.main else b""
        if len(content) > _LONGEST:
            raise UserError(f"{self.path}: is longer than {_LONGEST:,} bytes, the most that a skill may have")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{self.path}: is not UTF-8 text") from None

    @cached_property
    def skill(self) -> Skill:
        """The skill to measure: the whole package, or the plain file."""
        whole = self.main == FILE and bool(self.document.front)
        files = self.files if whole else {self.main: self.text.encode()}
        known, folder = secrets(), self.path.removesuffix(self.main)
        for name, content in files.items():
            refuse_secrets(content.decode("utf-8", "ignore"), f"{folder}{name}", known)
        if not whole:
            return Skill(self.text)
        if clash := name_clash(files):
            raise UserError(f"{self.path}: {clash}; rename one of the files")
        others = {name: content for name, content in files.items() if name != FILE}
        return Skill(self.document.body, self.document.front, others, self.executable & others.keys())

    @property
    def first_line(self) -> int:
        """The number of the file's line on which the skill's text begins; the first line is 1."""
        return 1 + (self.document.front.count("\n") if self.main == FILE else 0)

    def has(self, name: str) -> bool:
        """Does the package have a file or folder of this name? For a plain file, the files and folders next to the
        plain file are searched."""
        if not self.is_package:
            return name == self.main or self.near(name)
        bare = name.rstrip("/")
        return bare in {"", "."} or bare in self.files or any(known.startswith(f"{bare}/") for known in self.files)


def no_skill() -> Source:
    return Source(path="", where="no skill")


def main_file(path: Path) -> Path:
    """The path of the main document of the skill at `path`."""
    place = best_in(path)
    return place / FILE if place.is_dir() else place


def on_disk(path: Path, shown: str = "", where: str = "the working tree") -> Source:
    """Read the skill at `path`: a Markdown file, a package's folder or its SKILL.md, or a run's folder."""
    place = main_file(path)
    if not place.is_file():
        lacks = f"has no {FILE}" if path.is_dir() else "no such file"
        raise UserError(f"{path}: {lacks}; a skill is a Markdown file, a folder with a {FILE}, or a run's folder")
    name = shown or place.as_posix()
    if place.name != FILE:

        def near(other: str) -> bool:
            return (place.parent / other).exists()

        return Source(path=name, where=where, main=place.name, files={place.name: place.read_bytes()}, near=near)
    folder = place.resolve().parent
    try:
        rows = [(each, file.read_bytes(), info.st_mode & stat.S_IXUSR) for each, file, info in listed(folder)]
    except PackageError as error:
        raise UserError(str(error)) from None
    return Source(
        path=name,
        where=where,
        main=FILE,
        files={each: content for each, content, _ in rows},
        executable=frozenset(each for each, _, may_run in rows if may_run),
        folder=folder.name,
    )


def in_commit(repository: Repository, commit: str, path: str, label: str) -> Source | None:
    """Read the skill at `path` in a commit; None if the commit has no skill there. Links, and files that cannot belong
    to a package, are left out."""
    found = repository.files(commit, path)
    if found is None:
        return None
    where = f"{label} ({commit[:7]})" if not commit.startswith(label) else commit[:7]
    name = posixpath.basename(path)
    if "" in found and name != FILE:

        def near(other: str) -> bool:
            return repository.has(commit, posixpath.normpath(posixpath.join(posixpath.dirname(path), other)))

        return Source(path=path, where=where, main=name, files={name: found[""][0]}, near=near)
    folder = posixpath.dirname(path) if "" in found else path
    if "" in found:
        found = (repository.files(commit, folder) or {}) if folder else {FILE: found[""]}
    if FILE not in found:
        return None
    return Source(
        path=posixpath.join(folder, FILE),
        where=where,
        main=FILE,
        files={each: content for each, (content, _) in found.items() if not path_problem(each)},
        executable=frozenset(each for each, (_, may_run) in found.items() if may_run),
        folder=posixpath.basename(folder) or repository.top.name,
    )
