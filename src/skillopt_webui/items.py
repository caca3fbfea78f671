"""Makes the tables of items: for a run's versions, a step's batch and gate, an evaluation, a comparison or a check."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from pydantic import Field

from skillopt.record.base import Record
from skillopt.record.directory import RunDirectory
from skillopt.record.results import CheckResult, Comparison, EvalSummary
from skillopt.record.run import Measurement, Run
from skillopt.record.step import ItemEvidence
from skillopt.record.trajectory import RolloutError, Trajectory
from skillopt.tasks.base import SPLITS
from skillopt.view.failures import named_causes
from skillopt_webui.files import Stamp, stamp
from skillopt_webui.places import NotThereError

Rollout = Trajectory | RolloutError
Result = EvalSummary | Comparison | CheckResult
_SHORT = 200
NO_SKILL = "no skill"


class ItemRow(Record):
    """An item with its newest output."""

    optional: ClassVar = frozenset({"id", "outputs"})

    item: str
    split: str
    type: str
    cause: str
    input: str
    output: str
    expected: str
    feedback: str
    scores: list[float | None]
    """The score in each column; None if the item was not measured for this column."""
    id: str | None = None
    """The trajectory's id, if the row is about one trajectory."""
    outputs: list[str] | None = None
    """The output in each column, if the columns are two skills."""


class ItemTable(Record):
    columns: list[str] = Field(default=[])
    rows: list[ItemRow] = Field(default=[])


class StepTables(Record):
    """The items of a step's batch, and the items of its gate with the scores of the current skill and of the
    candidate."""

    batch: ItemTable
    gate: ItemTable


def run_items(run: Run) -> ItemTable:
    """The table of every measured item, with a column for each version of the skill."""
    return _run_items(run.root, stamp(run.files.summary))


@lru_cache(8)
def _run_items(root: Path, summary: Stamp | None) -> ItemTable:
    """The table of a run's items. Cached, because the table of a large run takes a second to make."""
    if summary is None:
        return ItemTable()
    run = Run(RunDirectory(root))
    versions = run.versions_by_hash
    measured = list(run.measurements())
    bare = [m for m in measured if m.trajectories.stem.endswith("no_skill") and m.skill_hash not in versions]
    names = [*([NO_SKILL] if bare else []), *(f"v{version}" for version in sorted(set(versions.values())))]
    column_of = {skill_hash: names.index(f"v{version}") for skill_hash, version in versions.items()}
    column_of |= {m.skill_hash: 0 for m in bare}
    means, split_of = _means(measured, column_of, len(names))
    newest, causes = _newest(run, measured, set(means)), _causes(run)
    rows = [
        _row(item, split_of[item], scores, newest.get(item), causes.get(item, "")) for item, scores in means.items()
    ]
    return ItemTable(columns=names, rows=sorted(rows, key=_worst_first))


def _means(
    all_measured: Sequence[Measurement], column_of: Mapping[str, int], width: int
) -> tuple[dict[str, list[float | None]], dict[str, str]]:
    """Each item's mean score by column, and its split."""
    means: dict[str, list[float | None]] = {}
    split_of: dict[str, str] = {}
    repeated: dict[tuple[str, int], list[float]] = {}  # few cells: a list for every cell would be slow
    for measured in all_measured:
        if measured.skill_hash not in column_of:
            continue
        column = column_of[measured.skill_hash]
        for item, (_, score) in measured.items.items():
            scores = means.get(item)
            if scores is None:
                scores = means[item] = [None] * width
            split_of[item] = measured.split
            if (first := scores[column]) is None:
                scores[column] = float(score)
            else:
                repeated.setdefault((item, column), [first]).append(score)
    for (item, column), several in repeated.items():
        means[item][column] = fmean(several)
    return means, split_of


def _row(item: str, split: str, scores: Sequence[float | None], rollout: Rollout | None, cause: str = "") -> ItemRow:
    scored = rollout if isinstance(rollout, Trajectory) else None
    return ItemRow(
        item=item,
        split=split,
        type=scored.type if scored else "",
        cause=cause,
        input=short(scored.input) if scored else "",
        output=short(rollout.error if isinstance(rollout, RolloutError) else scored.output if scored else ""),
        expected=short(" or ".join(scored.answers)) if scored else "",
        feedback=short(scored.score.feedback) if scored else "",
        scores=[None if score is None else round(score, 6) for score in scores],
    )


def _worst_first(row: ItemRow) -> tuple[str, float, str]:
    scores = [score for score in row.scores if score is not None]
    return row.split, fmean(scores) if scores else -1.0, row.item


def short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 60]} … {text[-50:]}"


def _newest(run: Run, all_measured: Sequence[Measurement], items: set[str]) -> dict[str, Rollout]:
    """For each item: the newest trajectory with any version of the skill. The newest files are read first, and reading
    stops when no item is missing."""
    versions = run.versions_by_hash
    order = sorted(
        (m for m in all_measured if m.skill_hash in versions),
        key=lambda m: (versions[m.skill_hash], m.kind),
        reverse=True,
    )
    newest: dict[str, Rollout] = {}
    read: set[Path] = set()
    for measured in order:
        missing = items - newest.keys()
        if measured.trajectories in read or not missing.intersection(measured.items):
            continue
        read.add(measured.trajectories)
        for rollout in run.trajectories(measured.trajectories):
            if rollout.item_id in missing and rollout.skill_hash in versions:
                newest[rollout.item_id] = rollout
    return newest


def _causes(run: Run) -> dict[str, str]:
    """For each training item: the cause that analysts named most often."""
    paths = sorted(run.files.steps.glob("step_*/trajectories.jsonl"))
    return named_causes(run, {rollout.id: rollout.item_id for path in paths for rollout in run.trajectories(path)})


def rollout_row(rollout: Rollout, split: str, metric: str = "hard") -> ItemRow:
    """The row of one rollout, with its id."""
    score = rollout.score.value(metric) if isinstance(rollout, Trajectory) else None
    return _row(rollout.item_id, split, [score], rollout).model_copy(update={"id": rollout.id})


def step_tables(run: Run, number: int) -> StepTables:
    metric = run.config.evaluation.metric
    batch = [rollout_row(rollout, "train", metric) for rollout in run.batch_trajectories(number)]
    newest = {rollout.item_id: rollout for rollout in run.gate_trajectories(number)}
    record = run.gate(number)
    evidence = record.evidence if record else ()
    evidence = tuple(sorted(evidence, key=lambda row: (-abs(row.after - row.before), row.item_id)))
    gate = [_gate_row(row, newest.get(row.item_id)) for row in evidence]
    return StepTables(
        batch=ItemTable(columns=["score"], rows=batch), gate=ItemTable(columns=["before", "after"], rows=gate)
    )


def _gate_row(row: ItemEvidence, rollout: Trajectory | None) -> ItemRow:
    shown = _row(row.item_id, "val", [row.before, row.after], rollout)
    return shown.model_copy(update={"id": rollout.id if rollout else None})


# The trajectory behind a score


def rollouts_of(run: Run, path: Path, item: str) -> list[Rollout]:
    """An item's rollouts in a file. To save time, only lines that contain the item's id are parsed."""
    name = json.dumps(item, ensure_ascii=False).encode("utf-8", "replace")
    return [rollout for rollout in run.trajectories(path, lambda line: name in line) if rollout.item_id == item]


def cell(run: Run, item: str, version: int) -> Rollout:
    """The newest rollout of an item with a version of the skill."""
    hashes = {skill_hash for skill_hash, number in run.versions_by_hash.items() if number == version}
    measured = [m for m in run.measurements() if m.skill_hash in hashes and item in m.items]
    if not measured:
        raise NotThereError(f"'{item}' was not measured under version {version}")
    for measurement in sorted(measured, key=lambda m: m.kind == "batch"):
        for rollout in rollouts_of(run, measurement.trajectories, item):
            if rollout.skill_hash in hashes:
                return rollout
    raise NotThereError(f"'{item}' under version {version}: only the score was kept, not the trajectory")


def bare_cell(run: Run, item: str, split: str) -> Rollout:
    """The rollout of an item without a skill, made at the end of the training."""
    path = run.files.evaluations / f"{split}_no_skill.jsonl"
    if split in SPLITS and (rollouts := rollouts_of(run, path, item)):
        return rollouts[0]
    raise NotThereError(f"'{item}' without a skill: only the score was kept, not the trajectory")


def search(run: Run, files: Iterable[Path], text: str) -> list[str]:
    """Items with a trajectory that contains the text: in the item's id, the task, the output, the expected answer or
    the feedback."""
    needle = text.casefold()
    encoded = json.dumps(needle, ensure_ascii=False)[1:-1]
    items: set[str] = set()
    for path in files:
        for rollout in run.trajectories(path, lambda line: encoded in line.decode("utf-8", "replace").casefold()):
            texts = [rollout.item_id]
            if isinstance(rollout, Trajectory):
                texts += [rollout.input, rollout.output, *rollout.answers, rollout.score.feedback]
            if any(needle in text.casefold() for text in texts):
                items.add(rollout.item_id)
    return sorted(items)


# Evaluations, comparisons and checks, whose folder is read like a run's


def measured_items(folder: Run, result: Result) -> ItemTable:
    """The table of items of an evaluation (one column), or of a comparison or check (two columns)."""
    names = _sides(result)
    seen: dict[str, dict[str, list[Trajectory]]] = {}
    for rollout in _trajectories(folder):
        seen.setdefault(rollout.item_id, {}).setdefault(_side(rollout.id, names), []).append(rollout)
    rows = []
    for item, by_side in seen.items():
        sides = [by_side.get(side, []) for side in names]
        scores = [fmean(r.score.value(result.metric) for r in rollouts) if rollouts else None for rollouts in sides]
        newest = next((rollouts[-1] for rollouts in reversed(sides) if rollouts), None)
        outputs = [short(rollouts[-1].output) if rollouts else "" for rollouts in sides]
        rows.append(_row(item, result.split, scores, newest).model_copy(update={"outputs": outputs}))
    return ItemTable(columns=list(names.values()), rows=sorted(rows, key=_worst_first))


def _trajectories(folder: Run) -> list[Trajectory]:
    rollouts = folder.trajectories(folder.root / "trajectories.jsonl")
    return [rollout for rollout in rollouts if isinstance(rollout, Trajectory)]


def _sides(result: Result) -> dict[str, str]:
    """The names of a measurement's sides. Each key is a text that all trajectory ids of this side contain."""
    if isinstance(result, Comparison):
        return {"compare-base": "left", "compare-skill": "right"}
    return {"base": "base", "skill": "skill"} if isinstance(result, CheckResult) else {"eval": "score"}


def _side(trace_id: str, names: Iterable[str]) -> str:
    return next((side for side in names if side in trace_id), "")


def measured_cell(folder: Run, result: Result, item: str, column: int) -> Trajectory:
    names = list(_sides(result))
    side = names[column] if column < len(names) else names[-1]
    rollouts = [rollout for rollout in _trajectories(folder) if rollout.item_id == item]
    if not rollouts:
        raise NotThereError(f"no trajectory of '{item}'")
    return next((rollout for rollout in reversed(rollouts) if _side(rollout.id, names) == side), rollouts[-1])
