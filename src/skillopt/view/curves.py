"""The values of a run's charts on the page and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt.record.step import SlowUpdateOutcome, StepRecord
from skillopt.record.summary import Summary
from skillopt.view.text import score

Point = tuple[float, float]
EPOCH_END = 0.5
"""Charts show an epoch's guidance this many steps after the epoch's last step, because the guidance is accepted
before the next step."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A candidate that a gate measured."""

    kind: str
    """`accept`, `reject`, `indecisive` or, for guidance that was accepted at the end of an epoch, `guidance`."""
    x: float
    score: float
    """The measured score; if the gate stopped early, the highest score that was still possible."""
    version: int
    """The version that was current after the gate."""
    said: str


@dataclass(frozen=True, kw_only=True)
class Curves:
    """A run's curves as points `(step, value)`; step 0 is the initial skill. Before the first measurement, all curves
    are empty."""

    scores: tuple[Point, ...] = ()
    """The current skill's validation score, as measured when this skill was accepted: a rejected step does not change
    the score. A version that was not measured has no point."""
    lengths: tuple[Point, ...] = ()
    """The current skill's tokens."""
    batches: tuple[Point, ...] = ()
    """The score of each step's training batch."""
    rates: tuple[Point, ...] = ()
    scheduled: tuple[Point, ...] = ()
    marks: tuple[Mark, ...] = ()
    ends: tuple[float, ...] = ()
    """The end of each epoch: half a step after the epoch's last step."""


def curves(history: Sequence[StepRecord], summary: Summary | None, tokens: Mapping[int, int]) -> Curves:
    """The curves of a run. `tokens` must contain the length of each version that guidance made (`guided_tokens`)."""
    if summary is None or summary.initial.val is None:
        return Curves()
    scores = [(0.0, float(summary.initial.val))]
    lengths = [(0.0, float(summary.initial.tokens))]
    marks = []
    for record in history:
        step = float(record.step)
        scores += [] if record.val is None else [(step, record.val)]
        lengths.append((step, float(record.skill_tokens)))
        if record.verdict != "skipped" and record.evidence.before is not None:
            marks.append(_mark(record))
        if guided := accepted_guidance(record):
            after, x = guided.evidence.after, step + EPOCH_END
            lengths.append((x, float(tokens.get(guided.version, record.skill_tokens))))
            if after is None:
                continue
            scores.append((x, float(after)))
            said = f"end of epoch {record.epoch}: guidance accepted, version {guided.version}, {score(after)}"
            marks.append(Mark(kind="guidance", x=x, score=float(after), version=guided.version, said=said))
    return Curves(
        scores=tuple(scores),
        lengths=tuple(lengths),
        batches=tuple((float(r.step), r.train_score) for r in history if r.train_score is not None),
        rates=tuple((float(r.step), r.learning_rate.used) for r in history),
        scheduled=tuple((float(r.step), r.learning_rate.scheduled) for r in history),
        marks=tuple(marks),
        ends=tuple(r.step + EPOCH_END for r in history if r.epoch_end),
    )


def _mark(record: StepRecord) -> Mark:
    evidence, verdict = record.evidence, record.verdict
    reached = evidence.at_most if evidence.after is None else evidence.after
    most = "at most " if evidence.after is None else ""
    words = {"accept": f"accepted, version {record.version}", "reject": "rejected"}.get(verdict, verdict)
    said = f"step {record.step}: {words}, {score(evidence.before)} → {most}{score(reached)}"
    return Mark(kind=verdict, x=float(record.step), score=float(reached), version=record.version, said=said)


def accepted_guidance(record: StepRecord) -> SlowUpdateOutcome | None:
    """The gate's record of the slow update after a step; None if no guidance was accepted."""
    guided = record.epoch_end and record.epoch_end.slow_update
    return guided if guided and guided.decision == "accept" else None


def guided_tokens(run: RunDirectory, history: Sequence[StepRecord]) -> dict[int, int]:
    """The tokens of each version that guidance made; step records have the tokens of all other versions."""
    versions = {guided.version for record in history if (guided := accepted_guidance(record))}
    with run.as_written():
        return {version: run.read_skill(version).tokens for version in versions if run.snapshot(version).is_file()}


# The heat map: how each item did under each version of the skill

HeatRow = tuple[str, tuple[float | None, ...]]
"""An item's name, and its score under each version; None if the item was not measured under a version."""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    versions: tuple[int, ...]
    val: list[HeatRow]
    """Items in the order of their mean scores, the lowest first."""
    train: list[HeatRow]


def heat_map(run: RunDirectory, names: Mapping[str, str]) -> HeatMap:
    """The heat map of a run, from all measurements of its versions. It leaves out rejected candidates and test
    items."""
    versions = Run(run).versions_by_hash
    seen: dict[str, dict[str, dict[int, list[float]]]] = {"val": {}, "train": {}}
    for measured in Run(run).measurements():
        if measured.skill_hash in versions and measured.split in seen:
            for item, (_, value) in measured.items.items():
                by_version = seen[measured.split].setdefault(item, {})
                by_version.setdefault(versions[measured.skill_hash], []).append(value)
    columns = tuple(sorted(versions.values()))

    def rows(items: Mapping[str, Mapping[int, Sequence[float]]]) -> list[HeatRow]:
        means = {item: fmean(value for values in by.values() for value in values) for item, by in items.items()}
        return [
            (names.get(item, item), tuple(fmean(items[item][v]) if v in items[item] else None for v in columns))
            for item in sorted(items, key=lambda item: (means[item], item))
        ]

    return HeatMap(versions=columns, val=rows(seen["val"]), train=rows(seen["train"]))
