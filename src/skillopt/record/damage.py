"""Finds damaged files of a run.

The state contains checksums of itself and of every file that a finished step wrote. The journal has its own checksums.
Every other file that training reads can be rebuilt from these files. If only the journal is left, the whole run can be
repeated without a call; the repeated run restores every other file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from skillopt.errors import Damaged
from skillopt.record.directory import RunDirectory
from skillopt.record.files import file_digest, plain, read_bytes, read_json, sync_folder
from skillopt.record.journal import REPLIES, UNREADABLE, Journal, seal
from skillopt.record.package import is_package
from skillopt.record.run import Run
from skillopt.record.state import WAY_OUT, Seal, State
from skillopt.record.step import StepRecord
from skillopt.skill import PatchLogError, Skill, replay

_GROWING = ("patch_log.jsonl", "review/conflicts.jsonl")
"""Files that steps append to. Their checksum covers the file up to the size that the state records."""


def seal_files(run: RunDirectory, state: State) -> None:
    """Add checksums of all files of the finished steps to the state. The caller must write the state afterwards."""
    new = {path.relative_to(run.root).as_posix(): path for path in _left(run, state) if path.is_file()}
    for name, path in new.items():
        size = path.stat().st_size
        if name in _GROWING and name in state.sealed and size < state.sealed[name].size:
            raise Damaged(f"{path}: became shorter during the run; {WAY_OUT}")
        if name in _GROWING or name not in state.sealed:
            state.sealed[name] = Seal(size=size, sha256=file_digest(path))
    for folder in {path.parent for path in new.values()} | {run.root}:
        sync_folder(folder)


def unseal(run: RunDirectory, state: State, paths: Iterable[Path]) -> None:
    """Remove the checksums of `paths` from the state, because these files will be written again. The caller must write
    the state afterwards."""
    names = {path.relative_to(run.root).as_posix() for path in paths}
    state.sealed = {name: entry for name, entry in state.sealed.items() if name not in names}


def _left(run: RunDirectory, state: State) -> Iterator[Path]:
    """The files that may have no checksum yet, such as those of the newest step and epoch."""
    for folder in (run.step(state.step), run.slow_update(state.epoch), run.meta_skill(state.epoch)):
        yield from (path for path in folder.glob("*") if not path.name.startswith("."))
    for version in range(state.version + 1):
        yield from (run.snapshot(version), run.changes(version))
    yield run.step_skill(state.step)
    yield from run.evaluations.glob("*.json*")
    yield from (run.root / name for name in _GROWING)
    if state.status == "finished":
        yield from (run.summary, run.config_yaml, run.config_json)


def broken(run: RunDirectory, state: State) -> Iterator[tuple[Path, str]]:
    """Every file that does not match its checksum, each with its problem."""
    for name, entry in state.sealed.items():
        file = run.root / name
        size = file.stat().st_size if file.is_file() else -1
        if size < 0:
            yield file, "is missing"
        elif size < entry.size:
            yield file, f"is too short: {entry.size} bytes were written, but it has only {size}"
        elif file_digest(file, entry.size) != entry.sha256 or (name not in _GROWING and size != entry.size):
            yield file, "was changed after it was written"


@dataclass(frozen=True, kw_only=True)
class Damage:
    path: Path
    what: str
    derived: bool = False
    """True if the file can be rebuilt from other files. Training writes such a file again whenever it starts."""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_damage(run: RunDirectory) -> list[Damage]:
    """Find damaged files, but change nothing. Files of an interrupted step are ignored, because a resumed run removes
    them."""
    found: list[Damage] = []
    replies = 0
    try:
        if run.state.exists():
            state = State.read(run.state)
            replies = state.replies
            found += [Damage(path=path, what=_named(run, path, what)) for path, what in broken(run, state)]
            found += [] if found else _derived(run, state)
        elif any(run.steps.glob("step_*")):
            found.append(Damage(path=run.state, what="is missing", derived=True))
    except Damaged as error:
        path, _, what = str(error).partition(": ")
        found.append(Damage(path=Path(path), what=what.partition(";")[0]))
    if problem := journal_problem(run.journal, replies):
        found.append(Damage(path=run.journal, what=problem))
    return found


def _named(run: RunDirectory, path: Path, what: str) -> str:
    """The problem of a damaged file. If the file is the patch log, the text names the damaged entry."""
    try:
        if path == run.patch_log.path and path.exists():
            list(run.patch_log.entries())
    except PatchLogError as error:
        return str(error).removeprefix(f"{path}: ")
    return what


def _derived(run: RunDirectory, state: State) -> Iterator[Damage]:
    """Find damage in files without a checksum, by rebuilding them from the files with checksums. The caller has found
    no damage in the files with checksums."""
    try:
        versions = replay(Run(run).skill(0), Run(run).finished_entries())
        best = versions[state.best.version]
    except (PatchLogError, LookupError, UnicodeDecodeError, OSError) as error:
        yield Damage(path=run.patch_log.path, what=f"is not enough to rebuild every version ({error})")
        return
    newer = run.snapshot(state.version + 1)  # an interrupted step may have written its candidate as the best skill
    written = [best, *([Skill(read_bytes(newer).decode("utf-8", "replace"))] if newer.is_file() else [])]
    bests = [skill.shown.text.encode() for skill in written]
    texts = {run.snapshot(version): [skill.text.encode()] for version, skill in versions.items()}
    if run.trains_package:
        texts |= {run.changes(version): [run.changes_text(skill).encode()] for version, skill in versions.items()}
        if not newer.is_file() and not is_package(run.best_package, best.shown):
            what = "differs from what the patch log gives" if run.best_package.exists() else "is missing"
            yield Damage(path=run.best_package, what=what, derived=True)
    for path, right in (texts | {run.best_skill: bests, run.skills / "best_skill.md": bests}).items():
        if not path.is_file() or read_bytes(path) not in right:
            what = "differs from what the patch log gives" if path.exists() else "is missing"
            yield Damage(path=path, what=what, derived=path not in texts)
    if not _history_fits(run, state):
        what = "differs from the steps' records" if run.history.exists() else "is missing"
        yield Damage(path=run.history, what=what, derived=True)


def history_of(run: RunDirectory, state: State) -> list[StepRecord]:
    """The history, rebuilt from the records of the finished steps."""
    records = []
    for step in range(1, state.step + 1):
        record = Run(run).step_record(step)
        ended = Run(run).epoch_end(step) if record.epoch <= state.epoch else None
        records.append(record.model_copy(update={"epoch_end": ended}))
    return records


def _history_fits(run: RunDirectory, state: State) -> bool:
    """Does history.json match the steps' records? Additions of an interrupted step or epoch end are ignored."""
    if not state.step and not run.history.exists():
        return True
    try:
        rows = [row for row in read_json(run.history) if row["step"] <= state.step]
        for row in rows:
            if "epoch_end" in row and row["epoch_end"]["epoch"] > state.epoch:
                del row["epoch_end"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return bool(rows == plain(history_of(run, state)))


def refuse_damage(run: RunDirectory) -> None:
    """Prepare a run to continue. Raise Damaged if a file that the run needs is damaged; else remove what an interrupted
    step left. A run without a state begins again, with the replies in its journal."""
    found = [damage for damage in find_damage(run) if not damage.derived]
    if found:
        lines = "\n".join(f"  {damage}" for damage in found)
        raise Damaged(f"this run is damaged, so training did not continue:\n{lines}\n{WAY_OUT}")
    if run.state.exists():
        take_back(run, State.read(run.state))
    else:
        run.roll_back(step=0, epoch=0, version=-1, patch_log_size=0)


def take_back(run: RunDirectory, state: State) -> None:
    """Remove everything that an interrupted step or epoch end added to the files of finished steps, even half a line.
    If the run is not finished, also remove evaluations without a checksum."""
    entry = state.sealed.get(run.conflicts.relative_to(run.root).as_posix())
    if entry and run.conflicts.stat().st_size > entry.size:
        os.truncate(run.conflicts, entry.size)
    measured = run.evaluations.glob("*.json*") if state.status != "finished" else ()
    for path in (run.epoch_end(state.step), *measured):
        if path.relative_to(run.root).as_posix() not in state.sealed:
            path.unlink(missing_ok=True)


def journal_problem(path: Path, least: int = 0) -> str:
    """The problem of a journal, which should have at least `least` replies; empty if there is no problem."""
    if not path.exists():
        return "is missing" if least else ""
    try:
        with Journal(path), closing(sqlite3.connect(path)) as db:
            (answer,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if answer != "ok":
                return f"is damaged ({' '.join(str(answer).split())[:120]})"
            db.text_factory = lambda data: data.decode("utf-8", "replace")
            sound = [row[-1] == seal(*row[:-1]) for row in db.execute(f"SELECT {REPLIES}, seal FROM replies")]  # noqa: S608
            if not all(sound):
                return f"is damaged: {sound.count(False)} of {len(sound)} replies were changed after they were received"
    except (*UNREADABLE, Damaged) as error:
        return f"is damaged ({str(error)[:120]})"
    if len(sound) < least:
        return f"has lost replies: it had {least} when the last step was finished, and has {len(sound)} now"
    return ""
