"""The heat map: how each item did under each version of the skill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from skillopt.envs.base import Score
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Scores from 0 to 1; None where an item was not measured under a version."""

    versions: tuple[int, ...]
    items: tuple[str, ...]
    """Within each split those that were solved least come first."""
    splits: tuple[str, ...]
    """The split of each item: val or train."""
    values: tuple[tuple[float | None, ...], ...]
    """A row for each item, a column for each version."""

    def only(self, split: str) -> HeatMap:
        """The rows of one split."""
        rows = [n for n, own in enumerate(self.splits) if own == split]
        return HeatMap(
            versions=self.versions,
            items=tuple(self.items[n] for n in rows),
            splits=tuple(self.splits[n] for n in rows),
            values=tuple(self.values[n] for n in rows),
        )

    def called(self, names: Mapping[str, str]) -> HeatMap:
        """With other names for some items."""
        return replace(self, items=tuple(names.get(item, item) for item in self.items))


def heat_map(run: RunDirectory) -> HeatMap:
    """From the initial evaluation, the steps' batches, and the accepting gates; rejected candidates are no versions."""
    versions = {run.read_skill(v).hash: v for v in reversed(run.versions())}
    seen: dict[str, dict[int, list[float]]] = {}
    split_of: dict[str, str] = {}
    for split, skill_hash, scores in _measured(run):
        if skill_hash in versions:
            for item, value in scores.items():
                seen.setdefault(item, {}).setdefault(versions[skill_hash], []).append(value)
                split_of[item] = split
    columns = tuple(sorted(versions.values()))
    means = {item: fmean(value for values in by.values() for value in values) for item, by in seen.items()}
    items = sorted(seen, key=lambda item: (split_of[item] != "val", means[item], item))
    return HeatMap(
        versions=columns,
        items=tuple(items),
        splits=tuple(split_of[item] for item in items),
        values=tuple(tuple(fmean(seen[i][v]) if v in seen[i] else None for v in columns) for i in items),
    )


def _measured(run: RunDirectory) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Split, skill hash, and each item's score in the run's metric."""
    metric = str(read_json(run.config_json).get("evaluation.metric", "hard"))
    initial = run.evaluations / "val_initial.json"
    if initial.exists():
        data = read_json(initial)
        yield "val", data["skill_hash"], {i: Score(**row).value(metric) for i, row in data["items"].items()}
    for path in sorted(run.steps.glob("step_*/trajectory_digest.json")):
        data = read_json(path)
        yield "train", data["skill_hash"], {i: Score(**row).value(metric) for i, row in data["items"].items()}
    for path in sorted([*run.steps.glob("step_*/gate.json"), *run.root.glob("slow_update/*/gate.json")]):
        data = read_json(path)
        if data["decision"] == "accept":
            yield "val", data["candidate_hash"], {row["item_id"]: row["after"] for row in data["evidence"]}
