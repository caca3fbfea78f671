"""Reads and checks skills on disk, and copies the package that a run begins with into the run."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

from skillopt.errors import UserError
from skillopt.keys import refuse_secrets, secrets
from skillopt.record.directory import RunDirectory
from skillopt.record.files import draft_of, read_text
from skillopt.skill import FILE, Skill
from skillopt.skill.folder import read_folder
from skillopt.skill.package import Package, PackageError, problems, read_package


def package_file(path: str | Path) -> Path | None:
    """The SKILL.md of a package. `path` is this file or its folder. None if there is no package."""
    place = Path(path)
    if place.is_dir():
        place = place / FILE
    return place if place.name == FILE and place.is_file() and open_package(place).front else None


def open_package(file: Path) -> Package:
    try:
        return read_package(read_text(file.resolve()))
    except UnicodeDecodeError:
        raise UserError(f"{file}: is not UTF-8 text") from None


def checked_package(folder: Path) -> Package:
    """Return the package in a folder. If the package cannot be trained and exported, raise a UserError that says
    why."""
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
    """Read a skill from disk: a whole package (named by its folder or its SKILL.md), or one document."""
    file = package_file(path)
    if file or path.is_dir():
        return whole_package(file.parent if file else path)
    return Skill(read_text(path.resolve()))


def whole_package(folder: Path) -> Skill:
    """Read and check the package in a folder. If a file cannot be read or contains a secret, raise a UserError
    that names the file."""
    try:
        skill = read_folder(folder)
    except PackageError as error:
        raise UserError(str(error)) from None
    known = secrets()
    for name, content in skill.files.items():
        refuse_secrets(content.decode("utf-8", "ignore"), str(folder / name), known)
    return skill


def keep_package(init_skill: str, skill: Skill, run: RunDirectory) -> None:
    """Copy the package that a run starts from into the run's folder. The copy appears in one move, and only once.

    `skill` is what the run trains: the whole package, or only its description. In the second case, the package is read
    from the folder of `init_skill`.
    """
    file = package_file(init_skill) if init_skill and not skill.is_package else None
    if file is None and not skill.is_package:
        return
    if run.package.exists() and (run.state.exists() or not skill.is_package or is_package(run.package, skill)):
        return
    draft = draft_of(run.package)
    (whole_package(file.parent) if file else skill).write_to(draft)
    shutil.rmtree(run.package, ignore_errors=True)
    draft.replace(run.package)


def is_package(folder: Path, skill: Skill) -> bool:
    """Does the folder contain exactly this skill?"""
    try:
        return read_folder(folder).hash == skill.hash
    except PackageError:
        return False


def package_hash(init_skill: str) -> str:
    """Fingerprint of all files of the package that a run starts from; empty if the run starts from one document."""
    file = package_file(init_skill) if init_skill else None
    return whole_package(file.parent).hash if file else ""


def zipped(skill: Skill) -> bytes:
    """A zip archive of all files of a package. The same package always gives the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in skill.files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if path in skill.executable else 0o100644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()
