"""A package on disk: read with every check before a byte is taken, written so that nothing outside is touched."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from skillopt.skill.document import FILE, Skill
from skillopt.skill.package import PackageError, read_package

MOST_FILES, MOST_BYTES, LARGEST_FILE = 2000, 100_000_000, 30_000_000
"""More than a package has: a home folder that is named by mistake is not read."""
_LEFT_OUT = {".git", ".env", "__pycache__", ".DS_Store"}
"""What is in the folder but not the package's: a `.env` is the user's."""
_UNUSUAL = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")


def path_problem(path: str) -> str:
    """Why this cannot be the path of a package's file; empty where it can. `references/rules.md` can."""
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        return "must be a path inside the package, such as references/rules.md, without '..'"
    if _UNUSUAL.search(path):
        return "holds a backslash, a control character or bytes that are not UTF-8"
    if len(path.encode()) > 240 or len(parts) > 10:
        return "is too long: at most 240 bytes and 10 levels"
    if left_out := [part for part in parts if part in _LEFT_OUT]:
        return f"holds '{left_out[0]}', which never belongs to a package"
    return ""


def read_folder(folder: Path) -> Skill:
    """The package in this folder: SKILL.md and all further files. Raises PackageError, which names the file."""
    contents: dict[str, bytes] = {}
    executable: set[str] = set()
    for path, place, info in listed(folder):
        contents[path] = place.read_bytes()
        if info.st_mode & stat.S_IXUSR:
            executable.add(path)
    if FILE not in contents:
        raise PackageError(f"{folder}: has no {FILE}; a skill package is a folder with that file")
    try:
        head = read_package(contents.pop(FILE).decode("utf-8"))
    except UnicodeDecodeError:
        raise PackageError(f"{folder / FILE}: is not UTF-8 text") from None
    return Skill(head.body, head.front, contents, frozenset(executable - {FILE}))


def listed(folder: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """The package's files in a fixed order: path in the package, place on disk, what the disk says of it.

    All are checked before the first is given out: links that lead out of the folder, sizes, names, kinds.
    """
    found: list[tuple[str, Path, os.stat_result]] = []
    size = 0
    for path, place in sorted(_walk(folder), key=lambda row: row[0].split("/")):
        info = _checked(folder, path, place)
        size += info.st_size
        if len(found) >= MOST_FILES or size > MOST_BYTES:
            raise PackageError(
                f"{folder}: has more than {MOST_FILES} files or {MOST_BYTES / 1e6:.0f} MB next to its {FILE}; a "
                "package is smaller: put the skill into a separate folder"
            )
        found.append((path, place, info))
    yield from found


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    count = 0
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in _LEFT_OUT and name not in links]
        for name in [*names, *links]:
            if name in _LEFT_OUT:
                continue
            count += 1
            if count > 10 * MOST_FILES:  # a folder that is no package: do not look at all of it
                raise PackageError(f"{folder}: has more than {MOST_FILES} files; put the skill into a separate folder")
            file = Path(place) / name
            yield file.relative_to(folder).as_posix(), file


def _checked(folder: Path, path: str, place: Path) -> os.stat_result:
    shown = place.as_posix().encode("utf-8", "backslashreplace").decode()
    if problem := path_problem(path):
        raise PackageError(f"{shown}: the name {problem}; rename the file")
    if place.is_symlink():
        try:
            goal = place.resolve(strict=True)
        except (OSError, RuntimeError):
            raise PackageError(f"{shown}: is a link to nothing; remove it") from None
        if not goal.is_relative_to(folder.resolve()) or goal.is_dir():
            raise PackageError(
                f"{shown}: is a link that leads out of the package, or to a folder; put a copy of the file in its place"
            )
    try:
        info = place.stat()
    except OSError as error:
        raise PackageError(f"{shown}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(info.st_mode):
        raise PackageError(f"{shown}: is not a regular file; remove it from the package")
    if info.st_size > LARGEST_FILE:
        raise PackageError(
            f"{shown}: has {info.st_size / 1e6:,.0f} MB; a file of a package may have {LARGEST_FILE / 1e6:.0f} MB"
        )
    return info


def changes(base: Skill, skill: Skill) -> dict[str, Any]:
    """What of the further files differs from the package that a run began with, for a JSON file."""
    changed = {path: content.decode() for path, content in skill.others.items() if base.others.get(path) != content}
    removed = sorted(base.others.keys() - skill.others.keys())
    return {"hash": skill.hash, "changed": dict(sorted(changed.items())), "removed": removed}


def with_changes(base: Skill, text: str, changed: dict[str, Any]) -> Skill:
    """The skill of which `changes` gave this. Raises PackageError where the files are no longer what they were."""
    skill = replace(base, text=text)
    for path in changed["removed"]:
        skill = skill.with_file(path, "")
    for path, content in changed["changed"].items():
        skill = skill.with_file(path, content)
    if skill.hash != changed["hash"]:
        raise PackageError("the files of this version are not what they were when it was written")
    return skill


def write_folder(skill: Skill, folder: Path, front: str = "") -> Path:
    """Write all files of a skill into a folder that is not there yet, or is empty. Returns the folder.

    `front` is the front matter for a skill that has none. Every path is checked first; a file or link that
    is already there is never followed or replaced.
    """
    files = {FILE: ((skill.front or front) + skill.text).encode(), **skill.others}
    for path in files:
        if problem := path_problem(path):
            raise PackageError(f"{path!r}: the name of a file in a package {problem}")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise PackageError(f"{folder}: exists already; a package is written to a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        place = folder.joinpath(*PurePosixPath(path).parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if path in skill.executable else 0o644
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    return folder
