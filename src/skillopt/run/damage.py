"""What in a run's folder is not as it was written, and what could bring it back.

Every file that training reads is either sealed, derived from sealed ones, or has a checksum of its own. The journal is
apart: from it alone the whole run can be done again without a call, so that anything else can be lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from skillopt.errors import Damaged
from skillopt.run.directory import RunDirectory
from skillopt.run.files import digest, read_json
from skillopt.run.journal_check import journal_problem
from skillopt.run.seals import broken, sealed_files
from skillopt.run.state import State
from skillopt.skill import Entry, PatchLogError, Skill, replay

Cure = Literal["rebuild", "finals", "replay", "salvage", "discard"]
"""rebuild: from other files, in place; finals: the last measurements are taken from the journal again; replay: the run
is done again from the journal; salvage: the sound replies of a journal are kept; discard: it is taken out."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    path: Path
    what: str
    cure: Cure

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_damage(run: RunDirectory) -> list[Damage]:
    """Reads only. What an interrupted step left behind the last finished one is no damage: a resume removes it."""
    if not run.state.exists():
        return list(_without_state(run))
    try:
        state = State.read(run.state)
        unsealed = list(broken(run, state))
    except Damaged as error:
        path, _, what = str(error).partition(": ")
        found = [Damage(path=Path(path), what=what.partition(";")[0], cure="replay")]
        return [*found, *_beside(run, least=0)]
    found = [Damage(path=path, what=what, cure=_cure(run, path)) for path, what in unsealed]
    if not any(damage.cure == "replay" for damage in found):
        found += _derived(run, state, {damage.path for damage in found})
    return [*found, *_beside(run, least=state.sealed.replies)]


def _without_state(run: RunDirectory) -> Iterator[Damage]:
    """A run that never finished its first measurement has none; one with steps has lost it."""
    if any(run.steps.glob("step_*")):
        yield Damage(path=run.state, what="is missing", cure="replay")
    yield from _beside(run, least=int(any(run.steps.glob("step_*"))))


def _cure(run: RunDirectory, path: Path) -> Cure:
    if path == run.summary or (path.parent == run.evaluations and path.name != "val_initial.json"):
        return "finals"
    return "rebuild" if path.parent == run.skills and path != run.snapshot(0) else "replay"


def _derived(run: RunDirectory, state: State, known: set[Path]) -> Iterator[Damage]:
    """Files that repeat what sealed ones say; all that is sealed is sound, versions after the first perhaps not."""
    try:
        versions = versions_of(run, state)
    except (PatchLogError, UnicodeDecodeError, OSError) as error:
        yield Damage(path=run.patch_log.path, what=str(error).removeprefix(f"{run.patch_log.path}: "), cure="replay")
        return
    for version, skill in versions.items():
        path = run.snapshot(version)
        if path not in known and not _says(path, skill.text):
            yield Damage(path=path, what="is not what the patch log gives", cure="rebuild")
    best = versions.get(state.best.version)
    newer = run.snapshot(state.version + 1)  # an interrupted step may have written its candidate as the best
    texts = ([best.text.encode()] if best else []) + ([newer.read_bytes()] if newer.is_file() else [])
    for path in (run.best_skill, run.skills / "best_skill.md"):
        if not path.is_file() or path.read_bytes() not in texts:
            what = f"is not version {state.best.version}, which was the best" if path.exists() else "is missing"
            yield Damage(path=path, what=what, cure="rebuild")
    if not _history_fits(run, state):
        what = "is not what the steps' records say" if run.history.exists() else "is missing"
        yield Damage(path=run.history, what=what, cure="rebuild")


def versions_of(run: RunDirectory, state: State) -> dict[int, Skill]:
    """Every finished version, from the initial skill and the patch log."""
    entries: list[Entry] = []
    read = 0
    for entry in run.patch_log.entries() if state.patch_log_size else ():
        entries.append(entry)
        read += len(entry.line())
        if read >= state.patch_log_size:
            break
    versions = replay(run.read_skill(0), entries)
    if state.version not in versions:
        raise PatchLogError(f"does not give version {state.version}, which the state speaks of")
    return versions


def history_of(run: RunDirectory, state: State) -> list[dict[str, Any]]:
    """The history from the finished steps' own records."""
    records = []
    sealed = sealed_files(run, state)
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
    return rows == history_of(run, state)


def _says(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _beside(run: RunDirectory, *, least: int) -> Iterator[Damage]:
    """What stands on its own: the journal, a person's decisions, the config."""
    if problem := journal_problem(run.journal, least):
        yield Damage(path=run.journal, what=problem, cure="salvage")
    for number, line in enumerate(decision_lines(run), 1):
        if line and not sound_decision(line):
            yield Damage(path=run.decisions, what=f"line {number} is not what was decided", cure="discard")
    yield from _config(run)


def decision_lines(run: RunDirectory) -> list[bytes]:
    """A last line without its end is still being written, and does not count."""
    return run.decisions.read_bytes().split(b"\n")[:-1] if run.decisions.exists() else []


def sound_decision(line: bytes) -> bool:
    try:
        row = json.loads(line)
        return bool(row.pop("check", "") == digest(row))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False


def _config(run: RunDirectory) -> Iterator[Damage]:
    """`config.yaml` has its checksum in its first line; `config.json` says the same, flattened."""
    if not run.config_yaml.exists() and not run.config_json.exists():
        return
    tree = config_tree(run)
    if tree is None:
        yield Damage(path=run.config_yaml, what="does not fit its checksum", cure="rebuild")
        return
    flat: Any = None
    with suppress(OSError, ValueError, RecursionError):
        flat = read_json(run.config_json)
    if flat != flattened(tree):
        yield Damage(path=run.config_json, what="does not say what config.yaml says", cure="rebuild")


def config_text(tree: dict[str, Any]) -> str:
    """A config as it stands in a run: with a checksum of what follows."""
    body = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    return f"# checksum {digest(body)}\n{body}"


def config_tree(run: RunDirectory) -> dict[str, Any] | None:
    """What `config.yaml` says; None where it is not as it was written."""
    with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        first, _, body = run.config_yaml.read_bytes().decode().partition("\n")
        if first == f"# checksum {digest(body)}":
            tree: dict[str, Any] = yaml.safe_load(body)
            return tree
    return None


def flattened(tree: dict[str, Any]) -> dict[str, Any]:
    """`section.key`, as in `config.json`."""
    return {f"{section}.{key}": value for section, keys in tree.items() for key, value in keys.items()}
