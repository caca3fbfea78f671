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
        for entry in run.patch_log.entries():
            entries.append(entry)
    except PatchLogError as error:
        return Audit(entries=len(entries), versions=0, problems=(str(error),))
    state, problem = _state(run)
    if problem:
        return Audit(entries=len(entries), versions=0, problems=(problem,))
    if state and run.patch_log.size < state.patch_log_size:
        lost = f"{run.patch_log.path}: entries are missing at the end ({state.patch_log_size} bytes were written)"
        return Audit(entries=len(entries), versions=0, problems=(lost,))
    entries = [entry for entry in entries if state is None or entry.version <= state.version]
    initial = _snapshot(run, 0)
    if initial is None:
        return Audit(entries=len(entries), versions=0, problems=(f"{run.snapshot(0)}: is missing or not UTF-8 text",))
    try:
        versions = replay(Skill(initial), entries)
    except PatchLogError as error:
        return Audit(entries=len(entries), versions=0, problems=(f"{run.patch_log.path}: {error}",))
    problems = tuple(_problems(run, versions, state))
    return Audit(entries=len(entries), versions=len(versions), problems=problems)


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


def _snapshot(run: RunDirectory, version: int) -> str | None:
    try:
        return run.snapshot(version).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _state(run: RunDirectory) -> tuple[State | None, str]:
    if not run.state.exists():
        return None, ""
    try:
        return State.read(run.state), ""
    except ValueError:
        return None, f"{run.state}: cannot be read"
