"""Packages as a run's start: the SKILL.md that is trained, and its other files, which the run keeps as they are."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from skillopt.errors import UserError
from skillopt.keys import refuse_secrets, secrets
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_text
from skillopt.skill import Skill
from skillopt.skill.package import FILE, Package, PackageError, problems, read_package

_MOST_FILES, _MOST_BYTES = 2000, 100_000_000
"""More than a package has: whoever names a home folder by mistake should not have it copied."""


def package_file(path: str | Path) -> Path | None:
    """The SKILL.md that a path means, itself or in the folder that it names; None where it is no package's."""
    place = Path(path)
    if place.is_dir():
        place = place / FILE
    return place if place.name == FILE and place.is_file() and open_package(place).front else None


def open_package(file: Path) -> Package:
    try:
        return read_package(read_text(file))
    except UnicodeDecodeError:
        raise UserError(f"{file}: is not UTF-8 text") from None


def checked_package(folder: Path) -> Package:
    """A package that can be trained and given away again; else what is wrong with it."""
    file = package_file(folder)
    if file is None:
        raise UserError(f"{folder}: is not a skill package; it needs a {FILE} that begins with front matter (---)")
    package = open_package(file)
    try:
        found = problems(package, file.resolve().parent.name)
    except PackageError as error:
        found = [str(error)]
    if found:
        raise UserError(f"{file}: {found[0]}")
    return package


def read_skill(path: Path) -> Skill:
    """A skill from a file: of a package the body, of any other Markdown file all of it."""
    file = package_file(path)
    return Skill(open_package(file).body) if file else Skill(read_text(path))


def keep_package(init_skill: str, run: RunDirectory) -> None:
    """Copy the package that a run starts from into the run, once; a kill leaves no half of it."""
    file = package_file(init_skill) if init_skill else None
    if file is None or run.package.exists():
        return
    draft = run.package.with_name(".package.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    copy_package(file.parent, draft)
    draft.replace(run.package)


def copy_package(folder: Path, to: Path) -> None:
    """The package's own files, and nothing that a link reaches outside of it."""
    for source in _files(folder):
        goal = to / source.relative_to(folder)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, goal)
        shutil.copymode(source, goal)


def package_hash(init_skill: str) -> str:
    """Fingerprint of all files of the package that a run starts from; empty where it is none."""
    file = package_file(init_skill) if init_skill else None
    if file is None:
        return ""
    digest, known = hashlib.sha256(), secrets()
    for source in _files(file.parent):
        refuse_secrets(source.read_text(encoding="utf-8", errors="ignore"), str(source), known)
        digest.update(f"{source.relative_to(file.parent)}\0".encode() + source.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """The package's files in a fixed order. What a link points to is the package's own only inside of it; a `.env` that
    lies there is the user's."""
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".env" and ".git" not in path.relative_to(folder).parts
    )
    size = sum(path.stat().st_size for path in found)
    if len(found) > _MOST_FILES or size > _MOST_BYTES:
        raise UserError(
            f"{folder}: has {len(found)} files of {size / 1e6:.0f} MB next to its {FILE}; a package is smaller: put "
            "the skill into a separate folder"
        )
    for path in found:
        if path.resolve().is_relative_to(folder.resolve()):
            yield path
