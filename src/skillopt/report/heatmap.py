"""The heat map: how each item did under each version of the skill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from skillopt.run.directory import RunDirectory
from skillopt.run.measured import measurements, versions_by_hash


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
    """From everything that was measured under a version; rejected candidates are no versions, test items no rows."""
    versions = versions_by_hash(run)
    seen: dict[str, dict[int, list[float]]] = {}
    split_of: dict[str, str] = {}
    for measured in measurements(run):
        if measured.skill_hash in versions and measured.split != "test":
            for item, (_, value) in measured.items.items():
                seen.setdefault(item, {}).setdefault(versions[measured.skill_hash], []).append(value)
                split_of[item] = measured.split
    columns = tuple(sorted(versions.values()))
    means = {item: fmean(value for values in by.values() for value in values) for item, by in seen.items()}
    items = sorted(seen, key=lambda item: (split_of[item] != "val", means[item], item))
    return HeatMap(
        versions=columns,
        items=tuple(items),
        splits=tuple(split_of[item] for item in items),
        values=tuple(tuple(fmean(seen[i][v]) if v in seen[i] else None for v in columns) for i in items),
    )
