"""Reads, in one pass, everything about a run that a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.results import Ablation
from skillopt.record.routing import Confusion, confusion
from skillopt.record.run import Run, Settings
from skillopt.record.step import Evidence, StepRecord, TestSplitRead
from skillopt.record.summary import Summary
from skillopt.record.trajectory import Trajectory
from skillopt.skill import Entry, PatchLogError, Skill, replay
from skillopt.training.edits.losses import lost_lines
from skillopt.view.blame import BlamedLine, best_version, blame, initial_skill
from skillopt.view.curves import HeatMap, heat_map
from skillopt.view.diagnosis import current_summary
from skillopt.view.failures import FailureGroup, failure_groups
from skillopt.view.figures import Figure, main_figures
from skillopt.view.traces import item_name
from skillopt.view.use import SkillInUse, skill_in_use

_CITED = 3
"""The maximum number of trajectories that a report shows for an edit."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One accepted version: its edits, and the gate's record."""

    entries: tuple[Entry, ...]
    before: Skill
    after: Skill
    improved: tuple[str, ...]
    """The names of the validation items that score higher than under the previous version."""
    regressed: tuple[str, ...]

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def evidence(self) -> Evidence:
        """The gate's record of this version."""
        return Evidence.model_validate(self.first.evidence)


@dataclass(frozen=True, kw_only=True)
class Facts:
    run: Run
    summary: Summary
    verdict: str
    """The result of the run in plain words."""
    history: list[StepRecord]
    config: Settings
    versions: dict[int, Skill]
    changes: tuple[Change, ...]
    shown: int
    """The version whose lines the report shows: the best version."""
    lines: tuple[BlamedLine, ...]
    heat: HeatMap
    failures: tuple[FailureGroup, ...]
    traces: dict[str, Trajectory] = field(default_factory=dict)
    """Some of the trajectories that the accepted edits cite, by the trajectory's id."""
    test_reads: list[TestSplitRead] = field(default_factory=list)
    ablations: tuple[Ablation, ...] = ()
    """The ablations of the version that is shown; empty if there are none."""
    routing: dict[str, Confusion] = field(default_factory=dict)
    """For each measurement, such as `test, initial`: which skill was loaded for which request. Empty unless the run
    trained a description in a library."""
    names: dict[str, str] = field(default_factory=dict)
    """Names of the items whose id is a hash, by id. The name is the beginning of the item's question."""
    use: SkillInUse = field(default_factory=SkillInUse)
    """The cost of a call, and held-out answers under the initial and the best skill."""
    trained_by: str = ""
    """The SkillOpt version that began the run and, if it differs, the version that continued the run."""
    trouble: str = ""
    """If the patch log cannot show which edit wrote each line, the problem with the log; else empty."""

    @property
    def figures(self) -> list[Figure]:
        return main_figures(self.summary, self._best_from)

    @property
    def lines_lost(self) -> int:
        """The number of lines that accepted edits removed."""
        return sum(len(lines_lost(entry)) for change in self.changes for entry in change.entries)

    @property
    def _best_from(self) -> str:
        """The origin of the best version: a step, or the guidance at an epoch's end."""
        best = self.summary.best
        if not best.version:
            return "the initial skill is the best"
        first = next((change.first for change in self.changes if change.first.version == best.version), None)
        if first and first.kind == "guidance":
            return f"best by the guidance after epoch {first.epoch}"
        return f"best at step {best.step}"

    @property
    def has_optimizer(self) -> bool:
        """True if the run used an optimizer or could have used one."""
        planned = self.summary.plan and self.summary.plan.calls.optimizer.high
        return bool(self.summary.calls.optimizer or planned is None or planned)


def read_facts(files: RunDirectory) -> Facts:
    """Read the facts of a run, also of an unfinished one. If the patch log was altered, `trouble` says so."""
    run = Run(files)
    summary = current_summary(run) if files.summary.is_file() else None
    if summary is None:
        raise UserError(f"{files.root}: is not a run's folder, or has measured nothing yet (it has no summary.json)")
    entries, versions, trouble = _provenance(files)
    shown = best_version(files, versions)
    names = item_names(run)
    return Facts(
        run=run,
        summary=summary,
        verdict=summary.verdict + " Some of the tasks were not reviewed by anybody." * run.unreviewed,
        history=run.history,
        config=run.settings,
        versions=versions,
        changes=tuple(_changes(run, entries, versions, names)),
        shown=shown,
        lines=tuple(blame(versions[0], entries, shown)),
        heat=heat_map(files, names),
        failures=tuple(failure_groups(run)) if summary.status != "running" else (),
        traces=_cited(run, entries),
        names=names,
        test_reads=run.test_reads,
        ablations=tuple(sorted((each for each in run.ablations if each.version == shown), key=lambda each: each.by)),
        routing=_routing(run),
        use=skill_in_use(run, summary, run.history),
        trained_by=f"SkillOpt {run.state.pins['skillopt']}" if run.state else "",
        trouble=trouble,
    )


def _routing(run: Run) -> dict[str, Confusion]:
    """Which skill was loaded for which request, before and after training, on the test split. If this split was not
    read: which skill was loaded before training, on the validation split."""
    options = run.settings.get("env.options")
    if run.settings.get("env.name") != "trigger" or not (isinstance(options, dict) and options.get("skills")):
        return {}
    files = {name: run.files.evaluations / f"{name}.jsonl" for name in ("test_initial", "test_best", "val_initial")}
    there = [name for name, path in files.items() if path.is_file()]
    return {
        name.replace("_", ", "): confusion(run.scored(files[name]))
        for name in ([name for name in there if name.startswith("test")] or there)
    }


def _provenance(run: RunDirectory) -> tuple[list[Entry], dict[int, Skill], str]:
    """The entries of the patch log, the versions that they make, and the problem with the log (empty if there is none).
    If the log was altered, there are no entries, and only the initial version."""
    try:
        entries = list(run.patch_log.entries())
        return entries, replay(initial_skill(run, entries), entries), ""
    except PatchLogError as error:
        return [], {0: initial_skill(run, [])}, str(error)


def _changes(
    run: Run, entries: Sequence[Entry], versions: Mapping[int, Skill], names: Mapping[str, str]
) -> Iterable[Change]:
    for version in sorted({entry.version for entry in entries}):
        group = tuple(entry for entry in entries if entry.version == version)
        first = group[0]
        gate = run.slow_update_gate(first.epoch) if first.kind == "guidance" else run.gate(first.step)
        rows = sorted(gate.evidence, key=lambda row: row.item_id) if gate else []
        yield Change(
            entries=group,
            before=versions[version - 1],
            after=versions[version],
            improved=tuple(names.get(row.item_id, row.item_id) for row in rows if row.change > 0),
            regressed=tuple(names.get(row.item_id, row.item_id) for row in rows if row.change < 0),
        )


def lines_lost(entry: Entry) -> dict[str, str]:
    """The lines that an accepted edit removed, each with the reason that the edit gives (empty if it gives none)."""
    return lost_lines(entry.edit) if entry.kind == "edit" else {}


def cited_ids(entry: Entry) -> tuple[str, ...]:
    """The ids of the trajectories that a report shows for an edit: the first few that the edit cites."""
    return entry.edit.trajectory_ids[:_CITED]


def item_names(run: Run) -> dict[str, str]:
    """Names of the items whose id is a hash, by id."""
    names: dict[str, str] = {}
    for trace in run.traces():
        if (name := item_name(trace.item_id, trace.input)) != trace.item_id:
            names.setdefault(trace.item_id, name)
    return names


def _cited(run: Run, entries: Iterable[Entry]) -> dict[str, Trajectory]:
    wanted = {trace_id for entry in entries for trace_id in cited_ids(entry)}
    return {trace.id: trace for trace in run.traces() if trace.id in wanted}
