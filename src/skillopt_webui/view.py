"""One run as the page shows it: its state, its steps, what was proposed and why, and its trajectories."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from skillopt.config import Price
from skillopt.models.base import Usage
from skillopt.models.handoff import box_of
from skillopt.models.prices import cost_of, price_of
from skillopt.provider_table import provider_of
from skillopt.record.base import ROLES, Record
from skillopt.record.comments import feedback_of
from skillopt.record.edits import EditPool, Patch, Ranked, SkippedEdit
from skillopt.record.events import EventRow, Live
from skillopt.record.run import Run, Settings
from skillopt.record.status import remedy, status_of
from skillopt.record.step import BatchDigest, EditCounts, EpochComparison, EpochEnd, GateRecord, StepRecord
from skillopt.record.summary import Summary
from skillopt.record.trajectory import RolloutError, Trajectory
from skillopt.skill.lines import LineMatcher
from skillopt.view.curves import Curves, curves, guided_tokens
from skillopt.view.ranking import ranking_words
from skillopt.view.skill_diff import whole_text
from skillopt.view.traces import find_trace
from skillopt_webui.alive import holder
from skillopt_webui.files import Cache, read_summary, readable
from skillopt_webui.items import StepTables, rollouts_of, step_tables
from skillopt_webui.places import NotThereError

_cache = Cache(64)
_LEFT_OUT = {"summary", "record", "path", "outcome"}
"""Of an event: what the page reads from files anyway."""


class StepRow(Record):
    """A line of the table of steps."""

    step: int
    epoch: int
    train: float | None
    before: float | None
    after: float | None
    at_most: float
    verdict: str
    score: float | None
    rate: float
    edits: EditCounts
    version: int
    tokens: int
    candidate_tokens: int
    errors: int
    usd: float | None
    calls: int
    rollouts: int
    seconds: dict[str, float]
    epoch_end: EpochEnd | None


class Estimate(Record):
    """What the remaining steps will take if they take as much as those before."""

    steps: int
    usd: float | None
    seconds: float
    calls: int


class Overview(Record):
    """All that the first view needs, in one answer."""

    pid: int | None
    status: str
    reason: str
    remedy: str
    verdict: str
    live: Live | None
    events: int
    """The size of events.jsonl."""
    started: EventRow | None
    summary: Summary | None
    config: Settings | None
    steps: list[StepRow]
    curves: Curves
    estimate: Estimate | None
    versions: list[int]
    conflicts: int
    letters: int | None
    comments: int
    log: list[EventRow]
    report: bool


def overview(run: Run) -> Overview:
    pid, files = holder(run.root), run.files
    summary = read_summary(run, _cache)
    status, reason = status_of(summary, files.events, busy=bool(pid))
    history = readable(lambda: run.history) or []
    started = _cache.get("started", files.events, lambda: _started(run))
    return Overview(
        pid=pid,
        status=status,
        reason=reason,
        remedy=remedy(status, reason),
        verdict=summary.verdict if summary else "",
        live=live(run) if pid else None,
        events=files.events.stat().st_size if files.events.exists() else 0,
        started=started,
        summary=summary,
        config=readable(lambda: run.settings),
        steps=[step_row(record) for record in history],
        curves=readable(lambda: curves(history, summary, guided_tokens(files, history))) or Curves(),
        estimate=_estimate(history, started) if pid else None,
        versions=run.versions,
        conflicts=_open_conflicts(run) if status != "finished" else 0,
        letters=_letters(run),
        comments=len(readable(lambda: feedback_of(files.comments)) or []),
        log=[slim(event) for event in run.event_rows(60_000)[-60:]],
        report=files.report.exists(),
    )


def _open_conflicts(run: Run) -> int:
    """How many wait for a person."""
    if not run.conflicts:
        return 0
    state = readable(lambda: run.state)
    decided = {*run.decisions, *(state.reviewed if state else ())}
    return sum(conflict.id not in decided for conflict in run.conflicts)


def _estimate(history: list[StepRecord], started: EventRow | None) -> Estimate | None:
    planned = (started or {}).get("steps")
    steps = planned - len(history) if isinstance(planned, int) else 0
    if not history or steps <= 0:
        return None
    last, share = step_row(history[-1]), steps / len(history)
    return Estimate(
        steps=steps,
        usd=None if last.usd is None else last.usd * share,
        seconds=sum(sum(record.telemetry.seconds.values()) for record in history) * share,
        calls=round(last.calls * share),
    )


def _letters(run: Run) -> int | None:
    """How many wait for a reply; None if the optimizer is not a handoff."""
    settings = readable(lambda: run.settings) or {}
    if not provider_of(str(settings.get("models.optimizer_model", ""))).human_paced:
        return None
    return len(box_of(run.root).open_letters())


def live(run: Run) -> Live | None:
    """None if live.json is damaged or missing."""
    return readable(lambda: run.live)


def _started(run: Run) -> EventRow | None:
    """The newest start of this run: how many steps it has, and over what."""
    starts = [event for event in run.event_rows(400_000) if event["kind"] == "run_started"]
    event = starts[-1] if starts else next((event for _, event in run.events_after(0)), None)
    return {key: value for key, value in event.items() if key != "path"} if event else None


class EventPage(Record):
    """Some events, the newest first, and how many there are in all."""

    events: list[EventRow]
    total: int


def events(run: Run, skip: int, count: int, text: str) -> EventPage:
    rows, total = run.event_page(skip, count, text)
    return EventPage(events=[slim(row) for row in rows], total=total)


def slim(event: EventRow) -> EventRow:
    return {key: value for key, value in event.items() if key not in _LEFT_OUT}


def step_row(record: StepRecord) -> StepRow:
    evidence, paid = record.evidence, record.telemetry.paid_so_far
    costs = [paid.of(role).usd for role in ROLES]
    return StepRow(
        step=record.step,
        epoch=record.epoch,
        train=record.train_score,
        before=evidence.before,
        after=evidence.after,
        at_most=evidence.at_most,
        verdict=record.verdict,
        score=record.val,
        rate=record.learning_rate.used,
        edits=record.edits,
        version=record.version,
        tokens=record.skill_tokens,
        candidate_tokens=record.candidate_tokens,
        errors=record.rollout_errors,
        usd=None if None in costs else sum(usd or 0.0 for usd in costs),
        calls=paid.target.calls + paid.optimizer.calls,
        rollouts=paid.target.rollouts,
        seconds=record.telemetry.seconds,
        epoch_end=record.epoch_end,
    )


class RankedEdit(Ranked):
    said: str
    """Why it was taken or not, in words."""


class StepPage(Record):
    """Everything that happened in one step, stage by stage."""

    record: StepRecord
    patches: list[Patch]
    aggregate: EditPool
    ranked: list[RankedEdit]
    skipped: tuple[SkippedEdit, ...]
    gate: GateRecord | None
    digest: BatchDigest
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
        gate=run.gate(number),
        digest=run.batch(number),
        tables=step_tables(run, number),
    )


class EpochPage(Record):
    """The epoch's end: slow update and meta skill."""

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


class PricedCall(BaseModel):
    """Tokens, seconds and dollars of a call of the target."""

    model_config = ConfigDict(extra="allow")

    prompt: int
    completion: int
    cached: int
    usd: float | None = None


class ShownTrajectory(Trajectory):
    version: int | None
    calls: list[PricedCall]


class ShownError(RolloutError):
    version: int | None
    calls: list[PricedCall]


Shown = ShownTrajectory | ShownError


def shown(rollout: Trajectory | RolloutError, version: int | None, model: str, prices: dict[str, Price]) -> Shown:
    """A rollout with the price of each of its calls."""
    if isinstance(rollout, RolloutError):
        return ShownError(**dict(rollout), version=version, calls=[])
    price = price_of(model, prices)
    calls = [PricedCall.model_validate(row) for row in rollout.telemetry.get("calls", [])]
    for call in calls:
        call.usd = cost_of(Usage(prompt=call.prompt, completion=call.completion, cached=call.cached), price)
    return ShownTrajectory(**dict(rollout), version=version, calls=calls)


def shown_in(run: Run, rollout: Trajectory | RolloutError, version: int | None) -> Shown:
    return shown(rollout, version, run.config.models.target_model, run.config.budget.prices)


def trajectory(run: Run, name: str) -> Shown:
    """One trajectory by its id."""
    if rollout := find_trace(run, name):
        return shown_in(run, rollout, version_of(run, rollout))
    raise NotThereError(f"no trajectory '{name}' was kept")


def trajectory_of(run: Run, kind: str, number: int, item: str) -> Shown:
    """An item's trajectory in a step's batch (`train`), its gate (`gate`) or a slow update (`slow`)."""
    paths: dict[str, Path] = {
        "train": run.files.step(number) / "trajectories.jsonl",
        "gate": run.files.step(number) / "gate_trajectories.jsonl",
        "slow": run.files.slow_update(number) / "trajectories.jsonl",
    }
    if kind not in paths:
        raise NotThereError(f"no trajectories of kind '{kind}'")
    if rollouts := rollouts_of(run, paths[kind], item):
        return shown_in(run, rollouts[-1], version_of(run, rollouts[-1]))
    raise NotThereError(f"no trajectory of '{item}' was kept there")


def version_of(run: Run, rollout: Trajectory | RolloutError) -> int | None:
    return run.versions_by_hash.get(rollout.skill_hash)


# Skills


def skill_text(run: Run, version: int) -> str:
    if not run.files.snapshot(version).is_file():
        raise NotThereError(f"no version {version}")
    return whole_text(run.skill(version))


class DiffBlock(Record):
    """Equal, changed, removed or added lines of two texts."""

    op: str
    a: list[str]
    b: list[str]
    a_line: int
    b_line: int


class Diff(Record):
    optional = frozenset({"a", "b"})

    a: str | None = None
    """The names of the two skills."""
    b: str | None = None
    blocks: list[DiffBlock]


def diff(a: str, b: str) -> list[DiffBlock]:
    """Two texts side by side."""
    left, right = a.split("\n"), b.split("\n")
    return [
        DiffBlock(op=op, a=left[i1:i2], b=right[j1:j2], a_line=i1 + 1, b_line=j1 + 1)
        for op, i1, i2, j1, j2 in LineMatcher(left, right).get_opcodes()
    ]
