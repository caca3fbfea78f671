"""Everything that a run has measured: which skill, on which items, with which scores. One reader for all who count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json

Reading = tuple[float, float]
"""An item's hard score, and its score in the run's metric."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One skill on some items of a split."""

    kind: str
    """evaluation, batch, gate or slow_update."""
    split: str
    skill_hash: str
    items: dict[str, Reading]
    trajectories: Path
    """Where the trajectories are; the file may be missing (evaluations of earlier versions kept only the scores)."""
    accepted: bool = False
    """A gate that accepted."""


def measurements(run: RunDirectory) -> Iterator[Measurement]:
    """Evaluations, batches, gates (of rejected candidates, too) and slow updates."""
    metric = str(read_json(run.config_json).get("evaluation.metric", "hard"))
    for path in sorted(run.evaluations.glob("*_*.json")):
        data = read_json(path)
        yield Measurement(
            kind="evaluation",
            split=path.stem.partition("_")[0],
            skill_hash=data["skill_hash"],
            items=_both(data["items"], metric),
            trajectories=path.with_suffix(".jsonl"),
        )
    for folder in sorted(run.steps.glob("step_*")):
        if not ((folder / "trajectory_digest.json").exists() and (folder / "gate.json").exists()):
            continue  # a full disk cut it short; it is done again
        data = read_json(folder / "trajectory_digest.json")
        yield Measurement(
            kind="batch",
            split="train",
            skill_hash=data["skill_hash"],
            items=_both(data["items"], metric),
            trajectories=folder / "trajectories.jsonl",
        )
        yield _gate(folder / "gate.json", folder / "gate_trajectories.jsonl")
    for folder in sorted(run.root.glob("slow_update/epoch_*")):
        yield from _slow(folder / "trajectories.jsonl", metric)
        if (folder / "gate.json").exists():
            yield _gate(folder / "gate.json", folder / "gate_trajectories.jsonl")


def _gate(path: Path, trajectories: Path) -> Measurement:
    data = read_json(path)
    return Measurement(
        kind="gate",
        split="val",
        skill_hash=data["candidate_hash"],
        items={row["item_id"]: (row["hard"], row["after"]) for row in data["evidence"]},
        trajectories=trajectories,
        accepted=data["decision"] == "accept",
    )


def _slow(path: Path, metric: str) -> Iterator[Measurement]:
    """Both skills of a slow update, item by item."""
    by_skill: dict[str, dict[str, Reading]] = {}
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for row in (json.loads(line) for line in file if line.strip()):
                reading = (row["score"]["hard"], value(row["score"], metric))
                by_skill.setdefault(row["skill_hash"], {})[row["item_id"]] = reading
    for skill_hash, items in by_skill.items():
        yield Measurement(kind="slow_update", split="train", skill_hash=skill_hash, items=items, trajectories=path)


def _both(items: dict[str, dict[str, float]], metric: str) -> dict[str, Reading]:
    return {item: (scores["hard"], value(scores, metric)) for item, scores in items.items()}


def value(score: dict[str, Any], metric: str) -> float:
    """A stored score in the run's metric."""
    hard, soft = float(score["hard"]), float(score["soft"])
    return (hard + soft) / 2 if metric == "mixed" else hard if metric == "hard" else soft


def versions_by_hash(run: RunDirectory) -> dict[str, int]:
    """The version of each skill; of equal ones the first."""
    return {run.read_skill(version).hash: version for version in reversed(run.versions())}
