"""The figures of a run. The terminal, report.md, report.html and the page all take them from here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from skillopt.record.base import Interval, Record
from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.training.use import TaskUse
from skillopt.view.text import dollars, duration, score


@dataclass(frozen=True, kw_only=True)
class MeasuredSkill:
    """A skill or a baseline, with its scores."""

    name: str
    detail: str = ""
    """A note on the skill, such as `seed, zero-shot`."""
    val: float | None = None
    val_interval: Interval | None = None
    test: float | None = None
    test_interval: Interval | None = None
    tokens: int | None = None


def measured_skills(summary: Summary) -> list[MeasuredSkill]:
    """The rows of a report: baselines, the initial skill, the best skill, and the best skill measured again."""
    initial, best = summary.initial, summary.best
    baselines, skills = summary.baselines, []
    if baselines.no_skill:
        skills.append(_measured("no skill", baselines.no_skill))
    if baselines.majority:
        skills.append(_measured("majority", baselines.majority, f"always “{baselines.majority.answer}”"))
    idle = baselines.do_nothing
    if idle and (idle.val or idle.test):  # a baseline of 0 need not be shown
        skills.append(_measured("an agent that does nothing", idle))
    skills += [_measured("initial", initial, f"{initial.kind}, zero-shot"), _measured("best", best)]
    if best.val_remeasured is not None and best.winners_curse is not None and best.version:
        skills.append(
            MeasuredSkill(
                name="best, re-measured",
                detail=f"{0 - best.winners_curse:+.2f} selection bias",
                val=best.val_remeasured,
                val_interval=best.val_remeasured_interval,
            )
        )
    return skills


def _measured(name: str, row: Record, detail: str = "") -> MeasuredSkill:
    fields = ("val", "val_interval", "test", "test_interval", "tokens")
    return MeasuredSkill(name=name, detail=detail, **{field: row.get(field) for field in fields})


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure at the head of a report."""

    name: str
    best: str
    note: str
    initial: str = ""


def main_figures(summary: Summary, best_from: str) -> list[Figure]:
    """The figures at the head of a report; `best_from` says in words which step gave the best version."""
    initial, best = summary.initial, summary.best
    rate, edits, steps = summary.edit_acceptance_rate, summary.edits, summary.steps
    figures = []
    for name, split in (("Validation", "val"), ("Test", "test")):
        bounds: Interval | None = best[f"{split}_interval"]
        note = f"95 % interval {bounds[0]:.2f}–{bounds[1]:.2f}" if bounds else "not measured yet"
        figures.append(Figure(name=name, initial=score(initial[split]), best=score(best[split]), note=note))
    share = f"{edits.accepted} of {edits.proposed} proposed edits"
    planned = summary.plan.steps.planned if summary.plan else "–"
    calls = sum(summary.calls.of(role) for role in summary.calls.roles)
    return [
        *figures,
        Figure(name="Skill length", initial=str(initial.tokens), best=str(best.tokens), note="tokens"),
        Figure(name="Edit acceptance", best="–" if rate is None else f"{rate:.0%}", note=share),
        Figure(name="Steps", best=f"{steps.run} of {planned}", note=f"{steps.accepted} accepted, {best_from}"),
        Figure(
            name="Persistent failures", best=str(len(summary.persistent_failures)), note="items that no skill solved"
        ),
        Figure(name="Cost", best=dollars(total_usd(summary)), note=f"{calls:,} calls"),
        Figure(name="Time", best=duration(summary.seconds), note=f"gate saved {summary.gate.calls_saved:,} calls"),
    ]


def failure_kinds(record: StepRecord) -> str:
    """The kinds of failures in a step's batch with their counts, as one text."""
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in record.failure_kinds.items())


# The edit funnel: what became of the edits that analysts proposed

STAGES = ("proposed", "usable", "distinct", "selected", "applied", "accepted")
"""The stages of an edit, in order. `usable`: the edit could be read and fits the document; `distinct`: it was not
removed when similar edits were merged and conflicts were set aside; `selected`: it is within the learning rate;
`applied`: it is in the candidate; `accepted`: the gate accepted the candidate."""


def funnel(history: Iterable[StepRecord]) -> dict[str, int]:
    """For each stage, the number of edits in `history` that reached it."""
    totals = dict.fromkeys(STAGES, 0)
    for edits in (record.edits for record in history):
        usable = edits.proposed - sum(edits.dropped.values())
        counts = {"usable": usable, "distinct": usable - edits.merged - edits.conflicting}
        for stage in STAGES:
            totals[stage] += counts[stage] if stage in counts else edits[stage]
    return totals


def dropped(history: Iterable[StepRecord]) -> dict[str, int]:
    """The number of edits that could not be used, by reason; the most frequent reason is first. Some edits were dropped
    when they were read, others were skipped when they were applied."""
    reasons: dict[str, int] = {}
    for edits in (record.edits for record in history):
        for kind, count in (*edits.dropped.items(), *edits.skipped.items()):
            reasons[kind] = reasons.get(kind, 0) + count
    return dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])))


# Costs and times


@dataclass(frozen=True, kw_only=True)
class CostRow:
    role: str
    stage: str
    calls: int
    prompt: int
    """Prompt tokens."""
    completion: int
    cached: int
    """Prompt tokens that the endpoint had in its cache."""
    written: int = 0
    """Prompt tokens that the endpoint wrote into its cache."""
    usd: float | None
    """The cost in dollars; None if the price is unknown."""


def use_table(initial: TaskUse, best: TaskUse) -> list[tuple[str, str, str]]:
    """A table of the costs of one call and of one task, with the initial skill and with the best skill."""
    names = ("tokens per call", "dollars per call", "calls per task", "tokens per task", "dollars per task")
    return list(zip(names, _use_cells(initial), _use_cells(best), strict=True))


def _use_cells(use: TaskUse) -> list[str]:
    a_call, a_task = (f"{tokens:,.0f}" if tokens else "not known" for tokens in (use.tokens_per_call, use.tokens))
    return [a_call, _known(use.usd_per_call), f"{use.turns:.1f}", a_task, _known(use.usd)]


def _known(usd: float | None) -> str:
    return "not known" if usd is None else f"${usd:.6f}" if usd else "$0"


COST_HEAD = ("role", "stage", "calls", "prompt tokens", "cached", "reply tokens", "cost")


def cost_rows(summary: Summary) -> list[CostRow]:
    """A row for each role and stage. Within a role, the stage with the most calls is first."""
    rows = []
    for role in summary.calls.roles:
        stages, tokens = summary.calls_by_stage.of(role), summary.tokens_by_stage.of(role)
        for stage in sorted(stages, key=lambda name: (-stages[name], name)):
            usd = summary.cost_usd_by_stage.of(role).get(stage)
            rows.append(CostRow(role=role, stage=stage, calls=stages[stage], usd=usd, **dict(tokens[stage])))
    return rows


def cost_table(summary: Summary) -> tuple[list[tuple[str, ...]], list[int]]:
    """The rows of `cost_rows` with a total after each role. Also returns the row numbers of the totals."""
    rows, totals = [], []
    for role in summary.calls.roles:
        rows += [row for row in cost_rows(summary) if row.role == role]
        totals.append(len(rows))
        calls, usd = summary.calls.of(role), summary.cost_usd.of(role)
        rows.append(CostRow(role=role, stage="all", calls=calls, usd=usd, **dict(summary.tokens.of(role))))
    return [_cells(row) for row in rows], totals


def _cells(row: CostRow) -> tuple[str, ...]:
    cached = f"{row.cached:,}" + (f" (+ {row.written:,} written)" if row.written else "")
    counts = (f"{row.calls:,}", f"{row.prompt:,}", cached, f"{row.completion:,}")
    return row.role, row.stage.replace("_", " "), *counts, dollars(row.usd)


def stage_seconds(summary: Summary) -> dict[str, float]:
    """Wall-clock seconds by stage, the longest stage first."""
    return dict(sorted(summary.seconds_by_stage.items(), key=lambda pair: (-pair[1], pair[0])))


def total_usd(summary: Summary) -> float | None:
    """The dollars that all roles cost together; None if a price is unknown."""
    costs = [summary.cost_usd.of(role) for role in summary.calls.roles]
    return None if None in costs else sum(usd or 0.0 for usd in costs)
