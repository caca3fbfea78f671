"""All that a report shows of a run, read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skillopt.errors import UserError
from skillopt.measure.bill import billed
from skillopt.measure.course import verdict_of
from skillopt.report.blame import BlamedLine, best_version, blame, initial_skill
from skillopt.report.curves import HeatMap, heat_map
from skillopt.report.failures import FailureGroup, failure_groups
from skillopt.report.text import item_name
from skillopt.report.traces import Trace, read_traces
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, read_jsonl
from skillopt.skill import Entry, PatchLogError, Skill, replay

_CITED = 3
"""Trajectories that are shown of those that an edit cites."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One accepted version: its edits, and what the gate saw."""

    entries: tuple[Entry, ...]
    before: Skill
    after: Skill
    improved: tuple[str, ...]
    """Selection items that score higher than under the version before."""
    regressed: tuple[str, ...]

    @property
    def first(self) -> Entry:
        return self.entries[0]


@dataclass(frozen=True, kw_only=True)
class Facts:
    run: RunDirectory
    summary: dict[str, Any]
    verdict: str
    """The result of the run in plain words."""
    history: list[dict[str, Any]]
    config: dict[str, Any]
    versions: dict[int, Skill]
    changes: tuple[Change, ...]
    shown: int
    """The version whose lines are shown: the best."""
    lines: tuple[BlamedLine, ...]
    heat: HeatMap
    failures: tuple[FailureGroup, ...]
    traces: dict[str, Trace] = field(default_factory=dict)
    """Some of the trajectories that the accepted edits cite, by id."""
    test_reads: list[dict[str, Any]] = field(default_factory=list)
    ablations: tuple[dict[str, Any], ...] = ()
    """What `skillopt ablate` found of the version shown."""
    names: dict[str, str] = field(default_factory=dict)
    """What people call the items whose id is a hash: how their question begins."""
    trained_by: str = ""
    """The version that trained it, and whether another continued it."""
    trouble: str = ""
    """Why there is no provenance; empty where there is."""

    @property
    def tokens(self) -> dict[int, int]:
        """The length of each version."""
        return {number: skill.tokens for number, skill in self.versions.items()}


def read_facts(run: RunDirectory) -> Facts:
    """Works for unfinished runs, and for one whose log was altered: it then says so and shows the rest."""
    if not run.summary.is_file():
        raise UserError(f"{run.root}: is not a run's folder, or has measured nothing yet (it has no summary.json)")
    entries, trouble = _entries(run)
    versions, lines, shown = _provenance(run, entries)
    summary = read_json(run.summary)
    if summary["status"] != "finished":
        summary = billed(run, summary)
    history = read_json(run.history) if run.history.exists() else []
    done = summary["status"] != "running"
    return Facts(
        run=run,
        summary=summary,
        verdict=verdict_of(run, summary, history),
        history=history,
        config=read_json(run.config_json),
        versions=versions,
        changes=tuple(_changes(run, entries, versions)),
        shown=shown,
        lines=lines,
        heat=heat_map(run),
        failures=tuple(failure_groups(run)) if done else (),
        traces=_cited(run, entries),
        names=item_names(run),
        test_reads=read_jsonl(run.test_reads),
        ablations=tuple(read_json(path) for path in sorted(run.ablation.glob(f"*_v{shown:04d}.json"))),
        trained_by=_trained_by(read_json(run.state)["pins"]) if run.state.exists() else "",
        trouble=trouble,
    )


def _trained_by(pins: Mapping[str, str]) -> str:
    return f"SkillOpt {pins.get('skillopt', '')}" + (f"; from {pins['changed']}" if "changed" in pins else "")


def _entries(run: RunDirectory) -> tuple[list[Entry], str]:
    """The log as far as it is sound; a version counts whole or not at all."""
    entries: list[Entry] = []
    try:
        for entry in run.patch_log.entries():
            entries.append(entry)
        replay(initial_skill(run, entries), entries)
    except PatchLogError as error:
        return [], str(error)
    return entries, ""


def _provenance(run: RunDirectory, entries: list[Entry]) -> tuple[dict[int, Skill], tuple[BlamedLine, ...], int]:
    initial = initial_skill(run, entries)
    versions = replay(initial, entries)
    shown = best_version(run, versions)
    return versions, tuple(blame(initial, entries, shown)), shown


def _changes(run: RunDirectory, entries: Sequence[Entry], versions: Mapping[int, Skill]) -> Iterable[Change]:
    for version in sorted({entry.version for entry in entries}):
        group = tuple(entry for entry in entries if entry.version == version)
        first = group[0]
        folder = run.slow_update(first.epoch) if first.kind == "guidance" else run.step(first.step)
        rows = read_json(folder / "gate.json")["evidence"] if (folder / "gate.json").exists() else []
        yield Change(
            entries=group,
            before=versions[version - 1],
            after=versions[version],
            improved=tuple(sorted(row["item_id"] for row in rows if row["after"] > row["before"])),
            regressed=tuple(sorted(row["item_id"] for row in rows if row["after"] < row["before"])),
        )


def cited_ids(entry: Entry) -> tuple[str, ...]:
    """The trajectories that are shown of an edit: the first few that it cites."""
    return entry.edit.trajectory_ids[:_CITED]


def item_names(run: RunDirectory) -> dict[str, str]:
    """By id, where the name is another than the id."""
    found: dict[str, str] = {}
    for trace in read_traces(run):
        item = str(trace["item_id"])
        if item not in found and (name := item_name(item, str(trace.get("input", "")))) != item:
            found[item] = name
    return found


def _cited(run: RunDirectory, entries: Iterable[Entry]) -> dict[str, Trace]:
    wanted = {trace_id for entry in entries for trace_id in cited_ids(entry)}
    return {trace["id"]: trace for trace in read_traces(run) if trace["id"] in wanted} if wanted else {}
