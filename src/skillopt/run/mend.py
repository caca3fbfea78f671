"""Bringing a damaged run back: by itself where the result is certain, else when `skillopt verify --repair` asks."""

from __future__ import annotations

import os
from pathlib import Path

from skillopt.errors import Damaged
from skillopt.run.damage import (
    Damage,
    config_text,
    config_tree,
    decision_lines,
    find_damage,
    flattened,
    history_of,
    sound_decision,
    versions_of,
)
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, write_atomic, write_json
from skillopt.run.journal_check import free_name, salvage
from skillopt.run.seals import sealed_files
from skillopt.run.state import WAY_OUT, State

AGAIN = "run the same `skillopt train` command again"


def mend(run: RunDirectory) -> list[str]:
    """Before a run goes on: rebuild what sound files give byte for byte, and say what; refuse anything else.

    Also clears away what a run left that lost its state, or never had one.
    """
    found = find_damage(run)
    unsure = [damage for damage in found if damage.cure not in {"rebuild", "finals"} and damage.path != run.state]
    if unsure or (run.state.exists() and any(damage.path == run.state for damage in found)):
        worst = "\n".join(f"  {damage}" for damage in found)
        way_out = WAY_OUT.replace("RUN", str(run.root))
        raise Damaged(f"this run is damaged, and nothing was trained on it:\n{worst}\n{way_out}")
    if not run.state.exists():
        run.roll_back(step=0, epoch=0, version=-1, patch_log_size=0)
        run.seals.unlink(missing_ok=True)
        return [str(damage) for damage in found]
    state = State.read(run.state)
    _rebuild(run, state, found)
    _take_back(run, state)
    return [str(damage) for damage in found if damage.path not in {run.config_yaml, run.config_json}]


def repair(run: RunDirectory) -> list[str]:
    """Mend all that can be mended; says what was done, line by line. The run must not be at work."""
    found = find_damage(run)
    told = []
    for damage in found:
        if damage.cure == "discard":
            told.append(_discard_decisions(run))
            break
    if any(damage.cure == "salvage" for damage in found):
        kept, aside = salvage(run.journal)
        told.append(f"{run.journal}: {kept} sound replies kept; the damaged file is now {aside.name}")
    if any(damage.cure == "replay" for damage in found):
        return [*told, *_start_over(run)]
    state = State.read(run.state) if run.state.exists() else None
    if state is None:
        return told
    _rebuild(run, state, found)
    told += [_told(run, damage) for damage in found if damage.cure == "rebuild"]
    if any(damage.cure == "salvage" for damage in found):
        state.sealed = state.sealed.model_copy(update={"replies": 0})
        state.write(run.state)
    if any(damage.cure == "finals" for damage in found):
        told.append(f"{run.summary}: {AGAIN}; it takes the last measurements from the journal and writes it anew")
    return told


def _rebuild(run: RunDirectory, state: State, found: list[Damage]) -> None:
    wanted = {damage.path for damage in found if damage.cure == "rebuild"}
    if any(path.suffix == ".md" for path in wanted):
        versions = versions_of(run, state)
        for version, skill in versions.items():
            if run.snapshot(version) in wanted:
                run.write_skill(version, skill)
        run.write_best(versions[state.best.version])
    if run.history in wanted:
        write_json(run.history, history_of(run, state))
    if wanted & {run.config_yaml, run.config_json}:
        _rebuild_config(run)
    if any(damage.cure == "finals" for damage in found):
        state.status, state.stop_reason = "stopped", "its last measurements were damaged"
        state.write(run.state)


def _rebuild_config(run: RunDirectory) -> None:
    """Where checksum, YAML and JSON do not agree, two of them may; else the next training writes both anew."""
    if tree := config_tree(run):
        write_json(run.config_json, flattened(tree))
        return
    try:
        flat = read_json(run.config_json)
        known: dict[str, dict[str, object]] = {}
        for dotted, value in flat.items():
            section, _, key = dotted.partition(".")
            known.setdefault(section, {})[key] = value
        text = config_text(known)
    except (OSError, ValueError, AttributeError, RecursionError):
        return
    damaged = run.config_yaml.read_bytes() if run.config_yaml.exists() else text.encode()
    first, body = text.encode().split(b"\n", 1)
    if damaged.startswith(first + b"\n") or damaged.endswith(body):
        write_atomic(run.config_yaml, text)


def _told(run: RunDirectory, damage: Damage) -> str:
    if damage.path == run.config_yaml and config_tree(run) is None:
        return f"{damage.path}: {AGAIN}; it writes it anew"
    return f"{damage.path}: rebuilt"


def _take_back(run: RunDirectory, state: State) -> None:
    """What an interrupted step or epoch end wrote among finished things; it may be half a line."""
    sealed = sealed_files(run, state)
    entry = sealed.get(run.conflicts.relative_to(run.root).as_posix())
    if entry and run.conflicts.stat().st_size > entry.size:
        os.truncate(run.conflicts, entry.size)
    ended = run.epoch_end(state.step)
    if ended.relative_to(run.root).as_posix() not in sealed:
        ended.unlink(missing_ok=True)


def _discard_decisions(run: RunDirectory) -> str:
    lines = [line for line in decision_lines(run) if line]
    sound = [line for line in lines if sound_decision(line)]
    aside = free_name(run.decisions.with_name("decisions.damaged.jsonl"))
    run.decisions.rename(aside)
    write_atomic(run.decisions, "".join(line.decode() + "\n" for line in sound))
    lost = f"{len(lines) - len(sound)} damaged lines taken out (kept in {aside.name})"
    return f"{run.decisions}: {lost}; decide again with `skillopt review`"


def _start_over(run: RunDirectory) -> list[str]:
    """Without its state a run is done again from its beginning, with every reply that the journal holds."""
    aside: Path | None = None
    if run.state.exists():
        aside = free_name(run.state.with_name("runtime_state.damaged.json"))
        run.state.rename(aside)
    kept = f" (the state is now {aside.name})" if aside else ""
    return [f"{run.root}: {AGAIN}; it does the run again from the journal, and pays for no reply that is there{kept}"]
