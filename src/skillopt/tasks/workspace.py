"""Workspaces: an item's initial files, the changes that a rollout makes, and the changed files, restored for a check.

An item's `workspace` is a folder below the folder of the tasks, or an object of path → text; `files` adds more files.
After a rollout, the journal stores only the changes. With them, the result can be checked at any later time.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import shutil
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.tasks.base import Episode, FileChange, Item
from skillopt.tasks.sandbox.trees import DEEPEST

MOST_FILES = 2000
LEFT_OUT = {"__pycache__"}
"""Folders, such as caches, whose files are ignored after a rollout."""
_LONGEST_SHOWN = 2000
_MOST_SHOWN = 12_000
"""Of the differences, at most `_LONGEST_SHOWN` characters are shown for one file, and at most `_MOST_SHOWN` for all
files together."""
_MOST_LISTED = 100
_LARGEST_COMPARED = 256 << 10

Content = Path | bytes
"""The content of a file: its path on disk, or its bytes."""
Files = Mapping[str, Content]


@dataclass(frozen=True, kw_only=True)
class WorkspaceStart:
    """The files that one item's workspace starts from."""

    files: Files
    executable: frozenset[str]
    digest: str
    """A hash of the files' names and contents. Two tasks that differ only in their files are different tasks."""

    def write_to(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                file.write_bytes(content)
            else:
                shutil.copyfile(content, file)
            file.chmod(0o755 if name in self.executable else 0o644)


class Workspaces:
    """The workspaces of a set of tasks. All of them are checked at once, before anything is paid for."""

    def __init__(
        self,
        root: Path,
        items: Sequence[Item] = (),
        *,
        most_mb: int = 64,
        needed: bool = False,
        starts: Mapping[str, Files] | None = None,
        local: bool = True,
    ) -> None:
        """`starts` are the initial files by item id, if they do not come from the items' fields."""
        self._given = starts or {}
        self.local = local
        """True if at least one task is done on this machine; False if all tasks are done in containers."""
        self._root = root
        self.most = most_mb << 20
        self._starts = {item.id: self._read(item) for item in items if "workspace" in (item.model_extra or {})}
        self.fingerprint = "".join(sorted(start.digest for start in self._starts.values()))
        self.used = needed or bool(self._starts)
        """True if the files that a rollout leaves are stored."""

    def start(self, item: Item) -> WorkspaceStart:
        return self._starts.get(item.id) or self._read(item)

    def _read(self, item: Item) -> WorkspaceStart:
        fields, where = item.model_extra or {}, f"item '{item.id}'"
        files: dict[str, Content] = dict(self._given.get(item.id) or {})
        for name in ("workspace", "files") if item.id not in self._given else ():
            files |= read_files(fields.get(name), self._root, f"{where}: {name}", self.most)
        if clash := next((name for name in files if any(str(up) in files for up in PurePosixPath(name).parents)), ""):
            raise UserError(
                f"{where}: workspace: a folder above '{clash}' is also given as a file; use different names"
            )
        total = sum(
            len(content) if isinstance(content, bytes) else content.stat().st_size for content in files.values()
        )
        if total > self.most:
            raise UserError(
                f"{where}: workspace: has {total >> 20} MB; the limit is {self.most >> 20} MB: "
                "remove files, or raise env.options.workspace_mb"
            )
        return start_of(files)


def read_files(source: Any, root: Path, where: str, most: int) -> dict[str, Content]:
    """The files of `source` by name. `source` is a folder below `root`, or an object of path → text."""
    if source is None or source == "":
        return {}
    if isinstance(source, Mapping):
        files = {checked_name(str(name), where): str(text).encode() for name, text in source.items()}
        return dict(sorted(files.items()))
    if not isinstance(source, str):
        raise UserError(f"{where}: must be the name of a folder, or an object that maps paths to texts")
    folder = (root / source).resolve()
    if not folder.is_relative_to(root.resolve()):
        raise UserError(f"{where}: '{source}' leads out of {root}; it must be a folder below {root}")
    if not folder.is_dir():
        raise UserError(f"{where}: '{source}' is not a folder below {root}")
    return dict(walk(folder, where, most))


def walk(folder: Path, where: str, most: int) -> Iterator[tuple[str, Path]]:
    """The plain files of a folder by name, in order. Raises UserError for links, pipes, too many files and too large
    files."""
    count = 0
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        name, info = path.relative_to(folder).as_posix(), path.lstat()
        if stat.S_ISDIR(info.st_mode):
            continue
        if stat.S_ISLNK(info.st_mode):
            raise UserError(f"{where}: '{name}' is a link; put the file itself there")
        if not stat.S_ISREG(info.st_mode):
            raise UserError(f"{where}: '{name}' is neither a file nor a folder; remove it")
        if info.st_size > most:
            raise UserError(f"{where}: '{name}' has {info.st_size >> 20} MB; the limit is {most >> 20} MB")
        count += 1
        if count > MOST_FILES:
            raise UserError(f"{where}: has more than {MOST_FILES} files; keep only the files that the task needs")
        yield checked_name(name, where), path


def checked_name(name: str, where: str) -> str:
    """A file's name within a workspace; raises UserError if the name leads out of the workspace."""
    path = PurePosixPath(name)
    odd = not name.isprintable() or "\\" in name or len(name) > 500
    if not path.parts or path.is_absolute() or ".." in path.parts or odd:
        raise UserError(
            f"{where}: {name[:100]!a} leads out of the workspace or is not a file name; use a path such as "
            "'folder/file.txt'"
        )
    return path.as_posix()


def is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o111)


def bytes_of(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def hash_of(content: Content) -> str:
    return hashlib.sha256(bytes_of(content)).hexdigest()


def start_of(files: Files) -> WorkspaceStart:
    """The initial state of a workspace with these files; executable files on disk stay executable."""
    executable = {name for name, content in files.items() if isinstance(content, Path) and is_executable(content)}
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(json.dumps([name, hash_of(content), name in executable]).encode())
    return WorkspaceStart(files=files, executable=frozenset(executable), digest=digest.hexdigest())


# The files that a rollout left


@dataclass(frozen=True, kw_only=True)
class WorkspaceDiff:
    """The difference between a workspace and its start."""

    changes: tuple[FileChange, ...] = ()
    packed: str = ""
    """The new and changed files and the names of removed ones, packed for `restore`."""
    problem: str = ""
    """Why the workspace was not stored (it is too large); empty if it was stored. A workspace that is too large counts
    as the agent's failure."""


class WorkedEpisode(Episode):
    """An episode with the files that it left (`WorkspaceDiff`), for the check."""

    packed: str = ""
    problem: str = ""
    untested: str = ""
    """Why the files of the episode could not be scored; empty if they could."""


def difference(start: WorkspaceStart, folder: Path, most: int) -> WorkspaceDiff:
    """The changes of a workspace since its start. Links are neither followed nor stored."""
    contents: dict[str, bytes] = {}
    executable, left = [], most
    for path in _plain_files(folder):
        name = path.relative_to(folder).as_posix()
        left -= path.lstat().st_size
        if left < 0 or len(contents) >= MOST_FILES:
            too = f"more than {most >> 20} MB" if left < 0 else f"more than {MOST_FILES} files"
            return WorkspaceDiff(problem=f"the workspace was left with {too}")
        try:
            contents[name] = path.read_bytes()
        except OSError:  # the agent has removed the permission to read it
            continue
        executable += [name] if is_executable(path) else []
    before = {name: bytes_of(content) for name, content in start.files.items()}
    other = {name: data for name, data in contents.items() if before.get(name) != data}
    gone = sorted(before.keys() - contents.keys())
    moded = {n for n in contents if n in before and (n in executable) != (n in start.executable)}
    files = {
        name: [base64.b64encode(_redacted(contents[name])).decode(), name in executable]
        for name in sorted({*other, *moded})
    }
    packed = zlib.compress(json.dumps({"files": files, "gone": gone}).encode(), 6)
    return WorkspaceDiff(changes=tuple(_changes(before, other, gone)), packed=base64.b64encode(packed).decode())


def _plain_files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir() or folder.is_symlink():
        return
    for path, names, files in os.walk(folder, followlinks=False):
        depth = len(Path(path).relative_to(folder).parts)
        names[:] = sorted(name for name in names if name not in LEFT_OUT) if depth < DEEPEST else []
        for name in sorted(files):
            file = Path(path, name)
            if stat.S_ISREG(file.lstat().st_mode) and _can_be_named(file.relative_to(folder).as_posix()):
                yield file


def _can_be_named(name: str) -> bool:
    try:
        return bool(checked_name(name, ""))
    except UserError:
        return False


def _redacted(data: bytes) -> bytes:
    """Redact secrets: an agent may have written a key into a file."""
    return redact(data.decode("latin-1")).encode("latin-1", "replace")


def _changes(before: Mapping[str, bytes], other: Mapping[str, bytes], gone: Sequence[str]) -> Iterator[FileChange]:
    room, names = _MOST_SHOWN, sorted({*other, *gone})
    for name in names[:_MOST_LISTED]:
        if name in gone:
            yield FileChange(path=name, kind="removed")
            continue
        shown = _shown(before.get(name), other[name])[: min(room, _LONGEST_SHOWN)]
        room -= len(shown)
        yield FileChange(path=name, kind="changed" if name in before else "added", shown=shown)


def _shown(old: bytes | None, new: bytes) -> str:
    try:
        if max(len(old or b""), len(new)) > _LARGEST_COMPARED or b"\0" in new:
            return f"({len(new)} bytes)"
        was, now = (old or b"").decode(), redact(new.decode())
    except UnicodeDecodeError:
        return f"({len(new)} bytes)"
    if old is None:
        return now
    lines = list(difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=1))
    return "\n".join(lines[2:])


def restore(start: WorkspaceStart, packed: str, folder: Path) -> None:
    """Write a workspace to a folder as the rollout left it."""
    start.write_to(folder)
    if not packed:
        return
    left = json.loads(zlib.decompress(base64.b64decode(packed)))
    for name in left["gone"]:
        (folder / checked_name(name, "journal")).unlink(missing_ok=True)
    for name, (content, executable) in left["files"].items():
        file = folder / checked_name(name, "journal")
        if file.is_dir():
            shutil.rmtree(file)  # a folder became a file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(content))
        file.chmod(0o755 if executable else 0o644)
