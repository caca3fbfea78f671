"""The report's findings for the page: blame, failures, costs. They are computed in skillopt.view."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from skillopt.record.base import Record
from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt.record.summary import PlanFigures
from skillopt.skill import FILE, Entry
from skillopt.view.billed import current_summary
from skillopt.view.blame import BlamedLine, blame_run
from skillopt.view.failures import FailureGroup, failure_groups, lead
from skillopt.view.figures import CostRow, cost_rows, dropped, funnel, stage_seconds
from skillopt.view.skill_diff import file_line
from skillopt_webui import view
from skillopt_webui.files import Stamp, readable, stamp
from skillopt_webui.places import NotThereError


class BlamedSkill(Record):
    """A version line by line, each with the number of the edit that wrote it; 0 for the initial skill."""

    version: int
    text: str
    lines: list[tuple[str, int]]
    entries: dict[int, Entry]
    """By number."""


def blamed(run: Run, version: int) -> BlamedSkill:
    text = view.skill_text(run, version)
    entries: dict[int, Entry] = {}
    rows: list[tuple[str, int]] = []
    for line in readable(lambda: _blame(run.root, version, stamp(run.files.snapshot(version)))) or []:
        if line.entry:
            entries[line.entry.seq] = line.entry
        if line.file != FILE and line.number == 1:
            rows.append((file_line(line.file), 0))
        rows.append((line.text, line.entry.seq if line.entry else 0))
    return BlamedSkill(version=version, text=text, lines=rows, entries=entries)


@lru_cache(16)
def _blame(run: Path, version: int, snapshot: Stamp | None) -> list[BlamedLine]:
    """Provenance of a long skill takes a while to replay."""
    return blame_run(RunDirectory(run), version)


class Failures(Record):
    """Items that no skill has solved, by cause, with what the evidence allows; and items that the endpoint refuses."""

    general: str
    groups: list[FailureGroup]
    set_aside: dict[str, str]


def failures(run: Run) -> Failures:
    groups = _groups(run.root, stamp(run.files.summary))
    set_aside = run.summary.set_aside if run.summary else {}
    return Failures(general=lead(groups), groups=groups, set_aside=set_aside)


@lru_cache(16)
def _groups(run: Path, summary: Stamp | None) -> list[FailureGroup]:
    return failure_groups(Run(RunDirectory(run))) if summary else []


class Costs(Record):
    rows: list[CostRow]
    seconds: dict[str, float]
    funnel: dict[str, int]
    dropped: dict[str, int]
    plan: PlanFigures | None


def costs(run: Run) -> Costs:
    summary = current_summary(run)
    if not summary:
        raise NotThereError("nothing is counted yet; the first step has to be finished")
    return Costs(
        rows=cost_rows(summary),
        seconds=stage_seconds(summary),
        funnel=funnel(run.history),
        dropped=dropped(run.history),
        plan=summary.plan,
    )
