"""Reads and writes packages on disk. Everything is checked before the first file is read; nothing outside of the
package's folder is touched."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BufferedRandom
from pathlib import Path, PurePosixPath
from typing import cast

from pydantic import BaseModel

from skillopt.skill.document import FILE, Skill
from skillopt.skill.package import PackageError, read_package

MOST_FILES, MOST_BYTES, LARGEST_FILE = 2000, 100_000_000, 30_000_000
"""Limits that no package reaches. They stop SkillOpt from reading a home folder that was named by mistake."""
_LEFT_OUT = {".git", ".env", "__pycache__", ".DS_Store"}
"""Files in the folder that do not belong to the package, such as the user's `.env`."""
_BLANK = re.compile("[\\\\\u115f\u1160\u2800\u3164\uffa0]")
"""Matches a backslash and invisible characters."""


class NotAFileError(OSError):
    """There is a link, a pipe, a device or a folder in place of a file."""

    def __init__(self, path: object) -> None:
        super().__init__(errno.EINVAL, "is a link, a pipe or a device, and must be a regular file", str(path))


def open_regular(path: Path, mode: str = "rb") -> BufferedRandom:
    """Open a regular file as bytes. For a link, a pipe or a device, raise NotAFileError; never follow a link or wait
    for a pipe."""
    return cast(BufferedRandom, open(path, mode, opener=_opened))


def _opened(path: str, flags: int) -> int:
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            raise NotAFileError(path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotAFileError(path)
    return handle


def path_problem(path: str) -> str:
    """Why this is not a valid path of a file in a package; empty if it is valid, such as `references/rules.md`."""
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        return "must be a path inside the package, such as references/rules.md, without '..'"
    if not path.isprintable() or _BLANK.search(path):
        return "holds a backslash, a control character, an invisible character or bytes that are not UTF-8"
    if len(path.encode()) > 240 or len(parts) > 10:
        return "is too long: at most 240 bytes and 10 levels"
    if left_out := [part for part in parts if part in _LEFT_OUT]:
        return f"holds '{left_out[0]}', which never belongs to a package"
    return ""


def name_clash(paths: Iterable[str]) -> str:
    """A message that names two of these paths if they are the same on a disk that ignores case; else empty."""
    seen: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            same = seen.setdefault(unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()), name)
            if same != name:
                return f"'{same}' and '{name}' differ only in case"
    return ""


def read_folder(folder: Path) -> Skill:
    """The package in this folder: SKILL.md and all further files. A PackageError names the file that is wrong."""
    contents: dict[str, bytes] = {}
    executable: set[str] = set()
    for path, file, info in listed(folder):
        contents[path] = file.read_bytes()
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
    """Yield the package's files in a fixed order, each as (path in the package, path on disk, result of `stat`).

    Before the first file is yielded, the names, kinds and sizes of all files are checked, and that no link leads out of
    the folder.
    """
    files: list[tuple[str, Path, os.stat_result]] = []
    size = 0
    for path, file in sorted(_walk(folder), key=lambda row: row[0].split("/")):
        info = _checked(folder, path, file)
        size += info.st_size
        if len(files) >= MOST_FILES or size > MOST_BYTES:
            raise PackageError(
                f"{folder}: has more than {MOST_FILES} files or {MOST_BYTES / 1e6:.0f} MB next to its {FILE}, "
                "too much for a package; put the skill into a separate folder"
            )
        files.append((path, file, info))
    if clash := name_clash(path for path, _, _ in files):
        raise PackageError(f"{folder}: {clash}, and many disks cannot hold both; rename one file")
    yield from files


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    count = 0
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in _LEFT_OUT and name not in links]
        for name in [*names, *links]:
            if name in _LEFT_OUT:
                continue
            count += 1
            if count > 10 * MOST_FILES:  # the folder is not a package: do not look at all of it
                raise PackageError(
                    f"{folder}: has more than {10 * MOST_FILES} files; put the skill into a separate folder"
                )
            file = Path(parent) / name
            yield file.relative_to(folder).as_posix(), file


def _checked(folder: Path, path: str, file: Path) -> os.stat_result:
    shown = file.as_posix().encode("utf-8", "backslashreplace").decode()
    if problem := path_problem(path):
        raise PackageError(f"{shown}: the name {problem}; rename the file")
    if file.is_symlink():
        try:
            goal = file.resolve(strict=True)
        except (OSError, RuntimeError):
            raise PackageError(f"{shown}: is a link to nothing; remove the link") from None
        if not goal.is_relative_to(folder.resolve()) or goal.is_dir():
            raise PackageError(
                f"{shown}: is a link that leads out of the package, or to a folder; put a copy of the file in its place"
            )
    try:
        info = file.stat()
    except OSError as error:
        raise PackageError(f"{shown}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(info.st_mode):
        raise PackageError(f"{shown}: is not a regular file; remove it from the package")
    if info.st_size > LARGEST_FILE:
        raise PackageError(
            f"{shown}: has {info.st_size / 1e6:,.0f} MB; a file of a package may have at most "
            f"{LARGEST_FILE / 1e6:.0f} MB"
        )
    return info


class PackageChanges(BaseModel):
    """The record `skills/skill_vNNNN.files.json`: how a package's files differ from those that the run began with."""

    hash: str
    """The hash of the whole package."""
    changed: dict[str, str]
    """The new text of each changed file, by path."""
    removed: list[str]


def changes(base: Skill, skill: Skill) -> PackageChanges:
    """The differences between a skill's further files and those of the package that a run began with, for a JSON
    file."""
    changed = {path: content.decode() for path, content in skill.others.items() if base.others.get(path) != content}
    removed = sorted(base.others.keys() - skill.others.keys())
    return PackageChanges(hash=skill.hash, changed=dict(sorted(changed.items())), removed=removed)


def with_changes(base: Skill, text: str, changed: PackageChanges) -> Skill:
    """Rebuild a version of the skill from its text and its stored `changes`. Raises PackageError if the package's files
    have changed since the version was stored."""
    skill = replace(base, text=text)
    for path in changed.removed:
        skill = skill.with_file(path, "")
    for path, content in changed.changed.items():
        skill = skill.with_file(path, content)
    if skill.hash != changed.hash:
        raise PackageError("the files of this version have changed since training wrote them")
    return skill


def write_folder(skill: Skill, folder: Path, front: str = "") -> Path:
    """Write all files of a skill into a folder that does not exist yet or is empty. Return the folder.

    `front` is used as the front matter if the skill has none. All paths are checked first. An existing file or link is
    never followed or replaced.
    """
    files = {FILE: ((skill.front or front) + skill.text).encode(), **skill.others}
    for path in files:
        if problem := path_problem(path):
            raise PackageError(f"{path!r}: the name of a file in a package {problem}")
    if clash := name_clash(files):
        raise PackageError(f"{folder}: {clash}; rename one of the files")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise PackageError(f"{folder}: exists already; a package is written to a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        target = folder.joinpath(*PurePosixPath(path).parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if path in skill.executable else 0o644
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    return folder
