"""Is a run what it says it is? The log's chain, and every version rebuilt from it, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skillopt.run.directory import RunDirectory
from skillopt.run.state import State
from skillopt.skill import Entry, PatchLogError, Skill, replay


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was checked, and every problem found; a run without problems is sound."""

    entries: int
    versions: int
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.problems


def audit(run: RunDirectory) -> Audit:
    """Reads only. What an interrupted step left behind the last finished one is no problem: a resume removes it."""
    entries: list[Entry] = []
    try:
        state = State.read(run.state) if run.state.exists() else None
        entries = _entries(run, state)
        versions = replay(Skill(run.snapshot(0).read_bytes().decode()), entries)
    except PatchLogError as error:
        return Audit(entries=len(entries), versions=0, problems=(str(error),))
    except FileNotFoundError as error:
        return Audit(entries=len(entries), versions=0, problems=(f"{error.filename}: is missing",))
    except ValueError:
        unreadable = run.snapshot(0) if entries else run.state
        return Audit(entries=len(entries), versions=0, problems=(f"{unreadable}: cannot be read",))
    return Audit(entries=len(entries), versions=len(versions), problems=tuple(_problems(run, versions, state)))


def _entries(run: RunDirectory, state: State | None) -> list[Entry]:
    """The entries of finished steps; a broken one among them raises."""
    entries: list[Entry] = []
    finished = run.patch_log.size if state is None else state.patch_log_size
    if run.patch_log.size < finished:
        raise PatchLogError(f"{run.patch_log.path}: entries are missing at the end ({finished} bytes were written)")
    read = 0
    for entry in run.patch_log.entries() if finished else ():
        entries.append(entry)
        read += len(entry.line())
        if read >= finished:
            break
    return entries


def _problems(run: RunDirectory, versions: dict[int, Skill], state: State | None) -> Iterator[str]:
    for version, skill in versions.items():
        path = run.snapshot(version)
        if not path.exists():
            yield f"{path}: is missing; the log gives it"
        elif path.read_bytes() != skill.text.encode():
            yield f"{path}: differs from what the log gives"
    if state is None:
        return
    if state.version not in versions:
        yield f"{run.state}: speaks of version {state.version}, which the log does not give"
    best = versions.get(state.best.version)
    for path in (run.best_skill, run.skills / "best_skill.md"):
        if best and not path.exists():
            yield f"{path}: is missing"
        elif best and path.read_bytes() != best.text.encode():
            yield f"{path}: is not version {state.best.version}, which was the best"
