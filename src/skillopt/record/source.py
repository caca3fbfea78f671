"""A skill as it lies somewhere: a file or a package's folder, on the disk or in a commit."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from skillopt.errors import UserError
from skillopt.keys import refuse_secrets
from skillopt.record.directory import best_in
from skillopt.record.git import LONGEST, MOST, Repository
from skillopt.record.package import whole_package
from skillopt.skill import FILE, Skill
from skillopt.skill.folder import LARGEST_FILE, name_clash, path_problem
from skillopt.skill.package import Package, read_package


@dataclass(frozen=True, kw_only=True)
class Source:
    """The main document and what lies next to it."""

    path: str
    """Of the main document, as people and git name it: `skills/triage/SKILL.md`; empty for no skill."""
    where: str
    """Which version: `the working tree`, `origin/main (1a2b3c4)`, `no skill`."""
    main: str = ""
    """The main document among the files."""
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    """By path within the package; a plain file has itself alone. None: too long to be read."""
    folder: str = ""
    """The package's folder, by its name; empty for a plain file."""
    near: Callable[[str], bool] = lambda _: False
    """Does a plain file have this neighbour?"""
    whole: Callable[[], Skill] | None = None
    """Reads the whole package, with its long files; None where there is nothing but the main document."""

    @property
    def is_package(self) -> bool:
        return bool(self.folder)

    @property
    def document(self) -> Package:
        return read_package(self.text)

    @cached_property
    def text(self) -> str:
        content = self.files.get(self.main, b"") if self.main else b""
        if content is None:
            raise UserError(f"{self.path}: is longer than {LONGEST:,} bytes; no skill is")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{self.path}: is not UTF-8 text") from None

    @cached_property
    def skill(self) -> Skill:
        """What is measured: the whole package, or the file."""
        if self.main == FILE and self.document.front:
            return self.whole() if self.whole else Skill(self.document.body, self.document.front)
        refuse_secrets(self.text, self.path)
        return Skill(self.text)

    @property
    def first_line(self) -> int:
        """The line of the file on which the skill's text begins, from 1."""
        return 1 + (self.document.front.count("\n") if self.main == FILE else 0)

    def has(self, name: str) -> bool:
        """Is there a file or folder of this name, within the package or next to the file?"""
        if not self.is_package:
            return name == self.main or self.near(name)
        bare = name.rstrip("/")
        return bare in {"", "."} or bare in self.files or any(known.startswith(f"{bare}/") for known in self.files)


def no_skill() -> Source:
    return Source(path="", where="no skill")


def main_file(path: Path) -> Path:
    """The main document of the skill that a path means."""
    place = best_in(path)
    return place / FILE if place.is_dir() else place


def on_disk(path: Path, shown: str = "", where: str = "the working tree") -> Source:
    """The skill that a path means: a Markdown file, a package's folder or its SKILL.md, or a run's folder."""
    place = main_file(path)
    if not place.is_file():
        lacks = f"has no {FILE}" if path.is_dir() else "no such file"
        raise UserError(f"{path}: {lacks}; a skill is a Markdown file, a folder with a {FILE}, or a run's folder")
    name = shown or place.as_posix()
    if place.name == FILE:
        folder = place.resolve().parent
        return Source(
            path=name,
            where=where,
            main=FILE,
            files=_read(folder),
            folder=folder.name,
            whole=lambda: whole_package(folder),
        )
    content = place.read_bytes() if place.stat().st_size <= LONGEST else None

    def near(other: str) -> bool:
        return (place.parent / other).exists()

    return Source(path=name, where=where, main=place.name, files={place.name: content}, near=near)


def in_commit(repository: Repository, commit: str, path: str, label: str) -> Source | None:
    """The same at a commit; None where it is not there."""
    found = repository.files(commit, path)
    if found is None:
        return None
    where = f"{label} ({commit[:7]})" if not commit.startswith(label) else commit[:7]
    name = posixpath.basename(path)
    if "" in found and name != FILE:

        def near(other: str) -> bool:
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), other))
            return repository.files(commit, place) is not None

        return Source(path=path, where=where, main=name, files={name: found[""]}, near=near)
    folder = posixpath.dirname(path) if "" in found else path
    if "" in found:
        found = (repository.files(commit, folder) or {}) if folder else {FILE: found[""]}
    if FILE not in found:
        return None
    main = posixpath.join(folder, FILE)
    own = posixpath.basename(folder) or repository.top.name

    def whole() -> Skill:
        return _committed(repository, commit, folder, f"{where}:{main}")

    return Source(path=main, where=where, main=FILE, files=found, folder=own, whole=whole if folder else None)


def _committed(repository: Repository, commit: str, folder: str, shown: str) -> Skill:
    """The package as it is in a commit. Links and what never belongs to a package are left out."""
    found = repository.files(commit, folder, longest=LARGEST_FILE) or {}
    files: dict[str, bytes] = {}
    for name, content in found.items():
        if content is None:
            raise UserError(f"{shown}: {name} is longer than {LARGEST_FILE:,} bytes; no file of a package may be")
        if not path_problem(name):
            refuse_secrets(content.decode("utf-8", "ignore"), f"{shown}: {name}")
            files[name] = content
    if clash := name_clash(files):
        raise UserError(f"{shown}: {clash}; rename one of the files")
    head = read_package(files.pop(FILE).decode("utf-8"))
    return Skill(head.body, head.front, files, repository.executable(commit, folder) & files.keys())


def _read(folder: Path) -> dict[str, bytes | None]:
    """A folder's own files; what a link points to is its own only inside of it, and a `.env` is the user's."""
    found: dict[str, bytes | None] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in {".git", "__pycache__"})
        for name in sorted(names):
            file = Path(place) / name
            if name == ".env" or not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
                continue
            if len(found) >= MOST:
                raise UserError(f"{folder}: has more than {MOST} files; put the skill into a separate folder")
            short = file.stat().st_size <= LONGEST
            found[file.relative_to(folder).as_posix()] = file.read_bytes() if short else None
    return found
