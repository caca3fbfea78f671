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
from skillopt_webui import items, view
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


class NewLine(Record):
    text: str
    step: int


class BestSkill(Record):
    """What the best skill does that the initial one did not: validation items, and the lines that are new."""

    version: int
    improved: list[str]
    regressed: list[str]
    lines: list[NewLine]


def best(run: Run) -> BestSkill:
    if not run.summary:
        raise NotThereError("nothing is measured yet")
    version = run.summary.best.version
    table = items.run_items(run)
    improved: list[str] = []
    regressed: list[str] = []
    lines = []
    if version and {"v0", f"v{version}"} <= set(table.columns):
        before, after = (table.columns.index(name) for name in ("v0", f"v{version}"))
        for row in table.rows:
            a, b = row.scores[before], row.scores[after]
            if row.split == "val" and a is not None and b is not None and a != b:
                (improved if b > a else regressed).append(row.item)
    if version:
        blame = blamed(run, version)
        lines = [NewLine(text=text, step=blame.entries[seq].step) for text, seq in blame.lines if seq and text.strip()]
    return BestSkill(version=version, improved=improved, regressed=regressed, lines=lines)


class FailedItem(Record):
    item: str
    type: str
    said: str
    last: str | None
    """The id of the newest trajectory."""


class FailedItems(Record):
    """Items that fail for one cause."""

    pattern: str
    advice: str
    standing: str
    items: list[FailedItem]


class Failures(Record):
    """Items that no skill has solved, by cause, with what the evidence allows; and items that the endpoint refuses."""

    general: str
    groups: list[FailedItems]
    set_aside: dict[str, str]


def failures(run: Run) -> Failures:
    groups = _groups(run.root, stamp(run.files.summary))
    shown = []
    for group in groups:
        rows = [
            FailedItem(item=item.item_id, type=item.type, said=item.said, last=item.last.id if item.last else None)
            for item in group.items
        ]
        shown.append(
            FailedItems(pattern=group.pattern, advice=group.advice, standing=group.items[0].standing, items=rows)
        )
    set_aside = run.summary.set_aside if run.summary else {}
    return Failures(general=lead(groups), groups=shown, set_aside=set_aside)


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
