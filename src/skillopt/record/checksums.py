"""Seals: a checksum of every file that a finished step left, so that none of them changes unseen.

`seals.jsonl` only grows. The state says how much of it counts and has its checksum; the state in turn has one of its
own. A run is read again only through this chain.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from skillopt.errors import Damaged
from skillopt.record.directory import RunDirectory
from skillopt.record.files import file_digest, read_bytes, sync_folder
from skillopt.record.state import WAY_OUT, Sealed, State
from skillopt.skill.folder import open_regular

_GROWING = ("patch_log.jsonl", "review/conflicts.jsonl")
"""What every step may add to: sealed up to its size."""


class Seal(BaseModel):
    model_config = ConfigDict(frozen=True)

    path: str
    """Within the run's folder."""
    size: int
    sha256: str


class Seals:
    """Seals what each step leaves. A step costs what it left itself, whatever the run's length."""

    def __init__(self, run: RunDirectory, state: State) -> None:
        """Of a run whose unfinished step is cleared away. Raises Damaged as `sealed_files` does."""
        self._run = run
        self._known = {path: entry.sha256 for path, entry in sealed_files(run, state).items()}
        self._list = hashlib.sha256(_listed(run, state))
        self._size = state.sealed.size
        self._version = -1
        """Skills up to this version are sealed."""
        self._grown = {name: (hashlib.sha256(), 0) for name in _GROWING}
        """What was read of a growing file, and how far."""

    def seal(self, state: State, replies: int) -> None:
        """Seal all that the state is about to declare finished; the state must be written next."""
        new = [entry for entry in self._left(state) if self._known.get(entry.path) != entry.sha256]
        added = "".join(json.dumps(entry.model_dump()) + "\n" for entry in new).encode()
        with open_regular(self._run.seals, "ab") as file:
            file.truncate(self._size)  # what an interrupted step sealed
            file.write(added)
            file.flush()
            os.fsync(file.fileno())
        for folder in sorted({(self._run.root / entry.path).parent for entry in new} | {self._run.root}):
            sync_folder(folder)
        self._known |= {entry.path: entry.sha256 for entry in new}
        self._list.update(added)
        self._size += len(added)
        self._version = state.version
        state.sealed = Sealed(size=self._size, sha256=self._list.hexdigest(), replies=replies)

    def _left(self, state: State) -> Iterator[Seal]:
        """What the newest step and epoch have left, and whatever else may be new."""
        run = self._run
        folders = (run.step(state.step), run.slow_update(state.epoch), run.meta_skill(state.epoch))
        paths = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
        new = range(self._version + 1, state.version + 1)
        paths += [path for version in new for path in (run.snapshot(version), run.changes(version))]
        paths += [run.step_skill(state.step), *sorted(run.evaluations.glob("*.json*"))]
        for path in paths:
            if path.is_file() and not path.name.startswith(".") and self._name(path) not in self._known:
                yield self._seal_of(path)
        if state.status == "finished":
            yield self._seal_of(run.summary)
        for name in _GROWING:
            if (run.root / name).is_file():
                yield self._grow(name)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._run.root).as_posix()

    def _seal_of(self, path: Path) -> Seal:
        return Seal(path=self._name(path), size=path.stat().st_size, sha256=file_digest(path))

    def _grow(self, name: str) -> Seal:
        hasher, read = self._grown[name]
        path = self._run.root / name
        if path.stat().st_size < read:
            raise Damaged(f"{path}: was cut during the run; {WAY_OUT}")
        with open_regular(path) as file:
            file.seek(read)
            added = file.read()
        hasher.update(added)
        self._grown[name] = (hasher, read + len(added))
        return Seal(path=name, size=read + len(added), sha256=hasher.hexdigest())


def _listed(run: RunDirectory, state: State) -> bytes:
    """The part of seals.jsonl that counts."""
    return read_bytes(run.seals, state.sealed.size) if run.seals.exists() else b""


def sealed_files(run: RunDirectory, state: State) -> dict[str, Seal]:
    """By path. Raises Damaged where the list itself is not as it was written."""
    data = _listed(run, state)
    if state.sealed.size and hashlib.sha256(data).hexdigest() != state.sealed.sha256:
        raise Damaged(f"{run.seals}: does not fit its checksum; {WAY_OUT}")
    rows = [Seal.model_validate_json(line) for line in data.splitlines()]
    return {row.path: row for row in rows}


def broken(run: RunDirectory, state: State) -> Iterator[tuple[Path, str]]:
    """Every sealed file that is not as it was sealed, and what is wrong with it."""
    for path, entry in sealed_files(run, state).items():
        file = run.root / path
        if not file.is_file():
            yield file, "is missing"
        elif file.stat().st_size < entry.size:
            yield file, f"was cut: {entry.size} bytes were written, {file.stat().st_size} are there"
        elif file_digest(file, entry.size) != entry.sha256 or (
            path not in _GROWING and file.stat().st_size != entry.size
        ):
            yield file, "is not what was written"
