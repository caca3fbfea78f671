"""Is a run undamaged? What is not, and how it is rebuilt.

Every file that training reads is sealed (seals.py), follows from sealed ones, or has its own checksums (the state, the
journal). From the journal alone the whole run can be done again without a call, so that anything else can be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from skillopt.errors import Damaged
from skillopt.run.directory import RunDirectory
from skillopt.run.files import free_name, read_json, write_atomic, write_json
from skillopt.run.journal_check import journal_problem, salvage
from skillopt.run.package import is_package
from skillopt.run.seals import broken, sealed_files
from skillopt.run.state import WAY_OUT, State
from skillopt.skill import Entry, PatchLogError, replay

Cure = Literal["rebuild", "finals", "replay", "salvage", "rewrite"]
"""rebuild: from other files, in place; finals: the last measurements are taken from the journal again; replay: the
whole run is; salvage: the sound replies of a journal are kept; rewrite: each training writes it anew."""
AGAIN = "run the same `skillopt train` command again"


@dataclass(frozen=True, kw_only=True)
class Damage:
    path: Path
    what: str
    cure: Cure

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_damage(run: RunDirectory) -> list[Damage]:
    """Reads only. What an interrupted step left behind the last finished one is no damage: a resume removes it."""
    found: list[Damage] = []
    replies = 0
    begun = any(run.steps.glob("step_*"))
    try:
        if run.state.exists():
            state = State.read(run.state)
            replies = state.sealed.replies
            found += [
                Damage(path=path, what=_named(run, path, what), cure=_cure(run, path))
                for path, what in broken(run, state)
            ]
            if not any(damage.cure == "replay" for damage in found):
                found += _derived(run, state, {damage.path for damage in found})
        elif begun:  # without steps, the first measurement was never finished, and there is no state yet
            replies = 1
            found.append(Damage(path=run.state, what="is missing", cure="replay"))
    except Damaged as error:
        path, _, what = str(error).partition(": ")
        found.append(Damage(path=Path(path), what=what.partition(";")[0], cure="replay"))
    if problem := journal_problem(run.journal, replies):
        found.append(Damage(path=run.journal, what=problem, cure="salvage"))
    if not _config_fits(run):
        found.append(Damage(path=run.config_yaml, what="does not say what config.json says", cure="rewrite"))
    return found


def _config_fits(run: RunDirectory) -> bool:
    """`config.json` is `config.yaml`, flattened; a run that was never opened has neither."""
    if not run.config_yaml.exists() and not run.config_json.exists():
        return True
    try:
        tree = yaml.safe_load(run.config_yaml.read_bytes())
        flat = {f"{section}.{key}": value for section, keys in tree.items() for key, value in keys.items()}
        return bool(flat == read_json(run.config_json))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, yaml.YAMLError):
        return False


def _named(run: RunDirectory, path: Path, what: str) -> str:
    """Of a patch log, which entry."""
    try:
        if path == run.patch_log.path and path.exists():
            for _ in run.patch_log.entries():
                pass
    except PatchLogError as error:
        return str(error).removeprefix(f"{path}: ")
    return what


def _cure(run: RunDirectory, path: Path) -> Cure:
    if path == run.summary or (path.parent == run.evaluations and path.stem != "val_initial"):
        return "finals"
    first = (run.snapshot(0), run.changes(0))
    return "rebuild" if path.parent == run.skills and path not in first else "replay"


def _derived(run: RunDirectory, state: State, known: set[Path]) -> Iterator[Damage]:
    """Files that repeat what sealed ones say; all that is sealed is sound, versions after the first perhaps not."""
    try:
        versions = replay(run.read_skill(0), finished_entries(run, state))
        best = versions[state.best.version]
    except (PatchLogError, LookupError, UnicodeDecodeError, OSError) as error:
        yield Damage(path=run.patch_log.path, what=f"does not give every version ({error})", cure="replay")
        return
    newer = run.snapshot(state.version + 1)  # an interrupted step may have written its candidate as the best
    bests = [best.text.encode(), *([newer.read_bytes()] if newer.is_file() else [])]
    texts = {run.snapshot(version): [skill.text.encode()] for version, skill in versions.items()}
    if run.trains_package:
        texts |= {run.changes(version): [run.changes_text(skill).encode()] for version, skill in versions.items()}
        if not newer.is_file() and not is_package(run.best_package, best):
            what = "is not what the patch log gives" if run.best_package.exists() else "is missing"
            yield Damage(path=run.best_package, what=what, cure="rebuild")
    for path, right in (texts | {run.best_skill: bests, run.skills / "best_skill.md": bests}).items():
        if path not in known and (not path.is_file() or path.read_bytes() not in right):
            what = "is not what the patch log gives" if path.exists() else "is missing"
            yield Damage(path=path, what=what, cure="rebuild")
    if not _history_fits(run, state):
        what = "is not what the steps' records say" if run.history.exists() else "is missing"
        yield Damage(path=run.history, what=what, cure="rebuild")


def finished_entries(run: RunDirectory, state: State | None) -> list[Entry]:
    """The patch log's entries of finished steps; of a run without a state, all."""
    entries: list[Entry] = []
    left = run.patch_log.size if state is None else state.patch_log_size
    for entry in run.patch_log.entries() if left else ():
        entries.append(entry)
        left -= len(entry.line())
        if left <= 0:
            break
    return entries


def _history_of(run: RunDirectory, state: State) -> list[dict[str, Any]]:
    """The history from the finished steps' own records."""
    records, sealed = [], sealed_files(run, state)
    for step in range(1, state.step + 1):
        record: dict[str, Any] = read_json(run.step(step) / "step_record.json")
        ended = run.epoch_end(step)
        if ended.relative_to(run.root).as_posix() in sealed:
            record["epoch_end"] = read_json(ended)
        records.append(record)
    return records


def _history_fits(run: RunDirectory, state: State) -> bool:
    """What an interrupted step or epoch end has added does not count."""
    if not state.step and not run.history.exists():
        return True
    try:
        rows = [row for row in read_json(run.history) if row["step"] <= state.step]
        for row in rows:
            if "epoch_end" in row and row["epoch_end"]["epoch"] > state.epoch:
                del row["epoch_end"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return rows == _history_of(run, state)


def rebuild(run: RunDirectory) -> list[str]:
    """Before a run continues: rebuild what undamaged files give byte for byte, and report it; refuse anything else.

    Also clears away what a run left that lost its state, or never had one.
    """
    found = find_damage(run)
    stateless = not run.state.exists()
    if any(d.cure in {"replay", "salvage"} and not (stateless and d.path == run.state) for d in found):
        worst = "\n".join(f"  {damage}" for damage in found)
        way_out = WAY_OUT.replace("RUN", str(run.root))
        raise Damaged(f"this run is damaged, and nothing was trained on it:\n{worst}\n{way_out}")
    if stateless:
        run.roll_back(step=0, epoch=0, version=-1, patch_log_size=0)
        run.seals.unlink(missing_ok=True)
    else:
        state = State.read(run.state)
        _write(run, state, found)
        _take_back(run, state)
    return [str(damage) for damage in found if damage.cure != "rewrite"]


def repair(run: RunDirectory) -> list[str]:
    """Rebuild all that can be rebuilt; says what was done, line by line. The run must not be at work."""
    found, done = find_damage(run), []
    cures = {damage.cure for damage in found}
    if "salvage" in cures:
        kept, aside = salvage(run.journal)
        done.append(f"{run.journal}: {kept} sound replies kept; the damaged file is now {aside.name}")
    if "replay" in cures:
        return [*done, _start_over(run)]
    if run.state.exists():
        state = State.read(run.state)
        _write(run, state, found)
        if "salvage" in cures:
            state.sealed = state.sealed.model_copy(update={"replies": 0})
            state.write(run.state)
    done += [f"{damage.path}: rebuilt" for damage in found if damage.cure == "rebuild"]
    done += [f"{damage.path}: {AGAIN}; it writes it again" for damage in found if damage.cure == "rewrite"]
    if "finals" in cures:
        done.append(f"{run.summary}: {AGAIN}; it takes the last measurements from the journal and writes it again")
    return done


def _write(run: RunDirectory, state: State, found: list[Damage]) -> None:
    wanted = {damage.path for damage in found if damage.cure == "rebuild"}
    if wanted - {run.history}:
        versions = replay(run.read_skill(0), finished_entries(run, state))
        for version, skill in versions.items():
            if run.snapshot(version) in wanted or run.changes(version) in wanted:
                run.write_skill(version, skill)
        run.write_best(versions[state.best.version])
        for step in (number for number in range(1, state.step + 1) if run.step_skill(number) in wanted):
            in_force = versions[read_json(run.step(step) / "step_record.json")["version"]]
            write_atomic(run.step_skill(step), in_force.text)
    if run.history in wanted:
        write_json(run.history, _history_of(run, state))
    if any(damage.cure == "finals" for damage in found):
        state.status, state.stop_reason = "stopped", "its last measurements were damaged"
        state.write(run.state)


def _take_back(run: RunDirectory, state: State) -> None:
    """What an interrupted step or epoch end wrote among finished things; it may be half a line."""
    sealed = sealed_files(run, state)
    entry = sealed.get(run.conflicts.relative_to(run.root).as_posix())
    if entry and run.conflicts.stat().st_size > entry.size:
        os.truncate(run.conflicts, entry.size)
    ended = run.epoch_end(state.step)
    if ended.relative_to(run.root).as_posix() not in sealed:
        ended.unlink(missing_ok=True)


def _start_over(run: RunDirectory) -> str:
    """Without its state a run is done again from its beginning, with every reply that the journal holds."""
    kept = ""
    if run.state.exists():
        aside = free_name(run.state.with_name("runtime_state.damaged.json"))
        run.state.rename(aside)
        kept = f" (the state is now {aside.name})"
    return f"{run.root}: {AGAIN}; it does the run again from the journal, and pays for no reply that is there{kept}"
