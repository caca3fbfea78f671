"""Makes the page's data about one run: its state, its steps, the proposed edits with their reasons, its
trajectories."""

from __future__ import annotations

from difflib import SequenceMatcher

from skillopt.models.handoff import box_of
from skillopt.provider_table import provider_of
from skillopt.record.base import Record
from skillopt.record.comments import feedback_of
from skillopt.record.edits import EditPool, Patch, Ranked
from skillopt.record.events import EventRow, Live
from skillopt.record.journal import OptimizerExchange
from skillopt.record.run import Labels, Run, Settings
from skillopt.record.status import ending, remedy, status_of
from skillopt.record.step import EpochComparison, GateRecord, StepRecord
from skillopt.record.summary import Summary
from skillopt.record.trajectory import RolloutError, Trajectory
from skillopt.skill import Skip
from skillopt.view.curves import Curves, curves, guided_tokens
from skillopt.view.diagnosis import current_summary, paid_now
from skillopt.view.figures import MeasuredSkill, measured_skills
from skillopt.view.ranking import ranking_words
from skillopt.view.skill_diff import whole_text
from skillopt.view.traces import find_trace
from skillopt_webui.alive import holder
from skillopt_webui.files import readable
from skillopt_webui.items import StepTables, step_tables
from skillopt_webui.places import NotThereError

_LEFT_OUT = {"summary", "record", "path", "outcome"}
"""Fields of events that the page reads from files instead."""


class Figures(Record):
    """The progress and costs of a run at this moment. All live numbers on the page come from here."""

    calls: int
    tokens: int
    usd: float | None
    """The cost in dollars; None if a price is unknown."""
    seconds: float
    steps: int
    planned: int | None


def figures(run: Run) -> Figures:
    """The figures from the journal and the summary. While a process works on the run, the seconds grow."""
    paid, summary, now = paid_now(run), readable(lambda: run.summary), live(run) if holder(run.root) else None
    roles = [paid.of(role) for role in paid.roles]
    costs = [role.usd for role in roles if role.usd is not None]
    seconds = now.time - began(run, summary, now) if now else summary.seconds if summary else 0.0
    return Figures(
        calls=sum(role.calls for role in roles),
        tokens=sum(role.tokens.total for role in roles),
        usd=sum(costs) if len(costs) == len(roles) else None,
        seconds=round(max(0.0, seconds), 1),
        steps=summary.steps.run if summary else 0,
        planned=summary.plan.steps.planned if summary and summary.plan else None,
    )


def began(run: Run, summary: Summary | None, now: Live) -> float:
    """The time at which the run would have begun if it had never been interrupted, in seconds since 1970."""
    return run.files.summary.stat().st_mtime - summary.seconds if summary else now.time - now.spent["minutes"][0] * 60


class Overview(Record):
    """Everything that the first view of a run needs."""

    pid: int | None
    status: str
    word: str
    """The status in a word for people."""
    reason: str
    remedy: str
    verdict: str
    measured: list[MeasuredSkill]
    labels: Labels
    live: Live | None
    figures: Figures
    human_paced: bool
    """True if a person or an agent answers as the optimizer. Then a long wait does not mean a problem."""
    events: int
    """The size of events.jsonl in bytes."""
    started: EventRow | None
    summary: Summary | None
    config: Settings | None
    steps: list[StepRecord]
    curves: Curves
    versions: list[int]
    conflicts: int
    letters: int | None
    comments: int
    log: list[EventRow]
    report: bool


def overview(run: Run) -> Overview:
    pid, files = holder(run.root), run.files
    summary = readable(lambda: current_summary(run))
    status, reason = status_of(summary, files.events, busy=bool(pid))
    history = readable(lambda: run.history) or []
    started = _started(run)
    return Overview(
        pid=pid,
        status=status,
        word=ending(status, reason),
        reason=reason,
        remedy=remedy(status, reason),
        verdict=summary.verdict if summary else "",
        measured=measured_skills(summary) if summary else [],
        labels=readable(lambda: run.labels) or Labels(),
        live=live(run) if pid else None,
        figures=figures(run),
        human_paced=_human_paced(run),
        events=files.events.stat().st_size if files.events.exists() else 0,
        started=started,
        summary=summary,
        config=readable(lambda: run.settings),
        steps=history,
        curves=readable(lambda: curves(history, summary, guided_tokens(files, history))) or Curves(),
        versions=run.versions,
        conflicts=_open_conflicts(run) if status != "finished" else 0,
        letters=open_letters(run),
        comments=len(readable(lambda: feedback_of(files.comments)) or []),
        log=[slim(event) for event in run.event_rows(60_000)[-60:]],
        report=files.report.exists(),
    )


def _open_conflicts(run: Run) -> int:
    """The number of conflicts that wait for a person's decision."""
    if not run.conflicts:
        return 0
    state = readable(lambda: run.state)
    decided = {*run.decisions, *(state.reviewed if state else ())}
    return sum(conflict.id not in decided for conflict in run.conflicts)


def open_letters(run: Run) -> int | None:
    """The number of letters that wait for a reply; None if the optimizer is not a handoff."""
    if not _human_paced(run):
        return None
    return len(box_of(run.root).open_letters())


def _human_paced(run: Run) -> bool:
    settings = readable(lambda: run.settings) or {}
    return provider_of(str(settings.get("models.optimizer_model", ""))).human_paced


def live(run: Run) -> Live | None:
    """The heartbeat of a run; None if live.json is damaged or missing."""
    return readable(lambda: run.live)


def _started(run: Run) -> EventRow | None:
    """The event of the run's newest start, which has the number of steps and the sizes of the splits."""
    starts = [event for event in run.event_rows(400_000) if event["kind"] == "run_started"]
    event = starts[-1] if starts else next((event for _, event in run.events_after(0)), None)
    return {key: value for key, value in event.items() if key != "path"} if event else None


def slim(event: EventRow) -> EventRow:
    return {key: value for key, value in event.items() if key not in _LEFT_OUT}


class RankedEdit(Ranked):
    said: str
    """The reason, in words, why the edit was selected or not."""


class StepPage(Record):
    """Everything that happened in one step, stage by stage."""

    record: StepRecord
    patches: list[Patch]
    aggregate: EditPool
    ranked: list[RankedEdit]
    skipped: tuple[Skip, ...]
    tables: StepTables


def step(run: Run, number: int) -> StepPage:
    if not run.files.step(number).is_dir():
        raise NotThereError(f"step {number} is not finished, or does not exist")
    selection = run.selection(number)
    words = ranking_words(selection.ranked)
    return StepPage(
        record=run.step_record(number),
        patches=run.patches(number),
        aggregate=run.pool(number),
        ranked=[RankedEdit(**dict(row), said=said) for row, said in zip(selection.ranked, words, strict=True)],
        skipped=selection.skipped,
        tables=step_tables(run, number),
    )


class Exchanges(Record):
    exchanges: list[OptimizerExchange]


def exchanges(run: Run, number: int) -> Exchanges:
    """The requests to the optimizer and its replies in one step. If an epoch ended after this step, also the
    requests and replies at the end of this epoch."""
    end = run.epoch_end(number)
    return Exchanges(exchanges=run.exchanges(number, end.epoch if end else None))


class EpochPage(Record):
    """The end of an epoch: its slow update and meta skill."""

    comparison: EpochComparison | None
    gate: GateRecord | None
    memory: str | None


def epoch(run: Run, number: int) -> EpochPage:
    if not run.files.slow_update(number).is_dir() and not run.files.meta_skill(number).is_dir():
        raise NotThereError(f"the end of epoch {number} has not been reached")
    return EpochPage(
        comparison=run.slow_update(number), gate=run.slow_update_gate(number), memory=run.meta_skill(number)
    )


# Trajectories


class ShownRollout(Record):
    """A rollout with the version of its skill; or the reason why there is no rollout."""

    rollout: Trajectory | RolloutError | None = None
    version: int | None = None
    """The version of the skill; None for a candidate that did not become a version."""
    absent: str = ""
    """The reason why there is no trajectory. A missing trajectory is not an error, because evaluations may keep only
    scores."""


def trajectory(run: Run, name: str) -> ShownRollout:
    """The trajectory whose id is `name`. Raises NotThereError if this trajectory was not kept."""
    if rollout := find_trace(run, name):
        return ShownRollout(rollout=rollout, version=run.versions_by_hash.get(rollout.skill_hash))
    raise NotThereError(f"no trajectory '{name}' was kept")


# Skills


def skill_text(run: Run, version: int) -> str:
    if not run.files.snapshot(version).is_file():
        raise NotThereError(f"the run has no version {version}")
    return whole_text(run.skill(version))


class DiffBlock(Record):
    """A block of equal, changed, removed or added lines of two texts."""

    op: str
    a: list[str]
    b: list[str]
    a_line: int
    b_line: int


class Diff(Record):
    blocks: list[DiffBlock]


def diff(a: str, b: str) -> Diff:
    """The differences between two texts, for a side-by-side view."""
    left, right = a.split("\n"), b.split("\n")
    blocks = [
        DiffBlock(op=op, a=left[i1:i2], b=right[j1:j2], a_line=i1 + 1, b_line=j1 + 1)
        for op, i1, i2, j1, j2 in SequenceMatcher(None, left, right).get_opcodes()
    ]
    return Diff(blocks=blocks)
