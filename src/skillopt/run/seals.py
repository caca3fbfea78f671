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
from skillopt.run.directory import RunDirectory
from skillopt.run.files import file_digest, sync_folder
from skillopt.run.state import WAY_OUT, State

_LASTING = ("skills/skill_v*.md", "steps/*/*", "slow_update/*/*", "meta_skill/*/*", "evaluations/*.json")
"""What a finished step or epoch leaves, and nobody writes again."""
_GROWING = ("patch_log.jsonl", "review/conflicts.jsonl")
"""What every step may add to: sealed up to its size."""


class Seal(BaseModel):
    model_config = ConfigDict(frozen=True)

    path: str
    """Within the run's folder."""
    size: int
    sha256: str


def seal(run: RunDirectory, state: State, replies: int) -> None:
    """Seal all that the state is about to declare finished; the state must be written next."""
    known = sealed_files(run, state)
    new = [entry for entry in _seals(run, state, known) if known.get(entry.path) != entry]
    added = "".join(json.dumps(entry.model_dump()) + "\n" for entry in new).encode()
    before = run.seals.read_bytes()[: state.sealed.size] if run.seals.exists() else b""
    with run.seals.open("ab") as file:
        file.truncate(len(before))  # what an interrupted step sealed
        file.write(added)
        file.flush()
        os.fsync(file.fileno())
    for folder in sorted({(run.root / entry.path).parent for entry in new} | {run.root}):
        sync_folder(folder)
    whole = before + added
    state.sealed = state.sealed.model_copy(
        update={"size": len(whole), "sha256": hashlib.sha256(whole).hexdigest(), "replies": replies}
    )


def sealed_files(run: RunDirectory, state: State) -> dict[str, Seal]:
    """By path. Raises Damaged where the list itself is not as it was written."""
    data = run.seals.read_bytes()[: state.sealed.size] if run.seals.exists() else b""
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


def _seals(run: RunDirectory, state: State, known: dict[str, Seal]) -> Iterator[Seal]:
    for pattern in _LASTING:
        for path in sorted(run.root.glob(pattern)):
            name = path.relative_to(run.root).as_posix()
            final = path.parent == run.evaluations and path.name != "val_initial.json"
            if path.is_file() and not path.name.startswith(".") and (final or name not in known):
                yield _seal_of(run, name)
    for name in (*_GROWING, *([run.summary.name] if state.status == "finished" else [])):
        if (run.root / name).is_file():
            yield _seal_of(run, name)


def _seal_of(run: RunDirectory, name: str) -> Seal:
    path = run.root / name
    return Seal(path=name, size=path.stat().st_size, sha256=file_digest(path))
