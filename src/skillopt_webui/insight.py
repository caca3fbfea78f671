"""Answers requests about the parts of a run that its report also shows: edits by line, failures, costs. The package
`skillopt.view` computes them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from statistics import fmean

from pydantic import Field

from skillopt.measure.verdict import named_figures, say
from skillopt.record.base import Interval, Record
from skillopt.record.directory import RunDirectory
from skillopt.record.results import AblatedPart
from skillopt.record.run import Run
from skillopt.record.summary import Gain, PlanFigures
from skillopt.skill import FILE, Entry
from skillopt.statistics import gain_interval, permutation_p
from skillopt.view.blame import BlamedLine, blame_run
from skillopt.view.diagnosis import current_summary
from skillopt.view.failures import FailureGroup, failure_groups, lead
from skillopt.view.figures import CostRow, cost_rows, dropped, funnel, stage_seconds
from skillopt.view.skill_diff import file_line
from skillopt.view.use import versions_in_use
from skillopt_webui import items, view
from skillopt_webui.files import Stamp, readable, stamp
from skillopt_webui.places import NotThereError


class BlamedSkill(Record):
    """A version of the skill. Each line has the number of the edit that wrote it; 0 means the initial skill."""

    version: int
    text: str
    lines: list[tuple[str, int]]
    entries: dict[int, Entry]
    """The entries of the patch log, by number."""
    files: dict[int, str] = Field(default={})
    """For a package: the names of its other files. The key is the number of the line in `lines` that shows the name."""
    worth: dict[int, AblatedPart] = Field(default={})
    """The ablation's result for each rule of the main file, by the number of the rule's first line; empty if there was
    no ablation."""


def blamed(run: Run, version: int) -> BlamedSkill:
    text = view.skill_text(run, version)
    entries: dict[int, Entry] = {}
    rows: list[tuple[str, int]] = []
    files: dict[int, str] = {}
    for line in readable(lambda: _blame(run.root, version, stamp(run.files.snapshot(version)))) or []:
        if line.entry:
            entries[line.entry.seq] = line.entry
        if line.file != FILE and line.number == 1:
            rows.append((file_line(line.file), 0))
            files[len(rows)] = line.file
        rows.append((line.text, line.entry.seq if line.entry else 0))
    newest = [done for done in readable(lambda: run.ablations) or [] if done.version == version][-1:]
    rules = [part for done in newest for part in done.rows if part.name.startswith("line")]
    worth = {part.lines[0]: part for part in rules if part.lines}
    return BlamedSkill(version=version, text=text, lines=rows, entries=entries, files=files, worth=worth)


@lru_cache(16)
def _blame(run: Path, version: int, snapshot: Stamp | None) -> list[BlamedLine]:
    """The lines of a version with their edits. Cached, because it takes a while to replay the patch log of a long
    skill."""
    return blame_run(RunDirectory(run), version)


class Failures(Record):
    """Items that no skill has solved, grouped by cause, with advice; and items that the endpoint refuses, with the
    reason."""

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


class VersionCost(Record):
    """A version's validation score, and the tokens of a call with this version."""

    version: int
    score: float
    tokens: float


class Costs(Record):
    rows: list[CostRow]
    versions: list[VersionCost]
    seconds: dict[str, float]
    funnel: dict[str, int]
    dropped: dict[str, int]
    plan: PlanFigures | None


def costs(run: Run) -> Costs:
    summary = current_summary(run)
    if not summary:
        raise NotThereError("no costs are known yet; wait until the first step is finished")
    return Costs(
        rows=cost_rows(summary),
        versions=readable(lambda: _versions(run.root, stamp(run.files.summary))) or [],
        seconds=stage_seconds(summary),
        funnel=funnel(run.history),
        dropped=dropped(run.history),
        plan=summary.plan,
    )


@lru_cache(16)
def _versions(run: Path, summary: Stamp | None) -> list[VersionCost]:
    opened = Run(RunDirectory(run))
    uses = versions_in_use(opened, opened.summary, opened.history) if opened.summary else []
    return [VersionCost(version=use.version, score=use.score, tokens=use.use.tokens_per_call) for use in uses]


class PairedRuns(Record):
    """A comparison of the best skills of two runs, A and B, on the items that both runs measured."""

    verdict: str
    outcome: str
    split: str
    items: int
    difference: float
    difference_interval: Interval | None
    p: float
    """The two-sided p-value."""


def paired(a: Run, b: Run) -> PairedRuns:
    """Compare two runs on the items of the test split that both have measured; if there are none, on those of the
    validation split. Raise NotThereError if both splits have no such item."""
    sides = [_best_scores(run) for run in (a, b)]
    for split in ("test", "val"):
        shared = sorted(sides[0].get(split, {}).keys() & sides[1].get(split, {}).keys())
        if shared:
            break
    else:
        raise NotThereError("the two runs share no measured item, so they cannot be compared item by item")
    before, after = ([side[split][item] for item in shared] for side in sides)
    differences = [y - x for x, y in zip(before, after, strict=True)]
    interval = gain_interval(differences)
    gain = Gain(before=fmean(before), after=fmean(after), tasks=len(shared), split=split, interval=interval)
    forth, back = (
        [((x,), (y,)) for x, y in zip(before, after, strict=True)],
        [((y,), (x,)) for x, y in zip(before, after, strict=True)],
    )
    note = (
        "Both skills were selected for their scores on these validation items; a comparison on the test split "
        "would say more."
        if split == "val"
        else ""
    )
    verdict = say(gain.word, named_figures(gain, "A", "B"), note=note)
    return PairedRuns(
        verdict=verdict.text,
        outcome=verdict.word,
        split=split,
        items=len(shared),
        difference=gain.value,
        difference_interval=interval,
        p=min(1.0, 2 * min(permutation_p(forth), permutation_p(back))),
    )


def _best_scores(run: Run) -> dict[str, dict[str, float]]:
    """The scores of a run's best version, by split and item."""
    table, summary = items.run_items(run), run.summary
    name = f"v{summary.best.version}" if summary else ""
    scores: dict[str, dict[str, float]] = {}
    for row in table.rows if name in table.columns else ():
        if (score := row.scores[table.columns.index(name)]) is not None:
            scores.setdefault(row.split, {})[row.item] = score
    return scores
