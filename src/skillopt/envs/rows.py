"""Items of benchmarks whose answers are no texts (games, workbooks, puzzles): split folders of JSON rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt.envs.base import SPLITS, Item
from skillopt.envs.data import read_splits
from skillopt.errors import UserError
from skillopt.run.files import write_atomic


def read_rows(split_dir: str, needs: Sequence[str], how_to_get: str) -> dict[str, list[Item]]:
    """The items of a split folder. `needs` are the benchmark's own fields, which must be there."""
    if not split_dir or not all((Path(split_dir) / split).is_dir() for split in SPLITS):
        what = f"'{split_dir}' does not hold train/, val/ and test/" if split_dir else "is empty"
        raise UserError(f"env.split_dir: {what}; {how_to_get}")
    splits = read_splits(split_dir, answers="answers" in needs)
    for split, items in splits.items():
        for item in items:
            for name in needs:
                if name != "answers" and field(item, name) in (None, "", []):
                    raise UserError(
                        f"{split_dir}/{split}: item '{item.id}': {name}: is missing or empty; it must be there"
                    )
    return splits


def field(item: Item, name: str) -> Any:
    """A field of the benchmark's own."""
    return (item.model_extra or {}).get(name)


def write_splits(folder: Path, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write rows where `read_rows` finds them."""
    for split, rows in splits.items():
        write_atomic(folder / split / "items.json", json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n")


def safe_file(root: Path, name: str, where: str) -> Path:
    """A file that a row names, below `root`: a dataset cannot make us read anything else."""
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise UserError(f"{where}: '{name}' leads out of {root}; files must lie below it")
    if not path.is_file():
        raise UserError(f"{where}: the file '{name}' is not in {root}; put it there, or run `skillopt data prepare`")
    return path


def in_turn(types: Sequence[str]) -> list[int]:
    """The places of these types, one of each type after another, as far as they go."""
    seen: Counter[str] = Counter()
    rounds = []
    for place, kind in enumerate(types):
        seen[kind] += 1
        rounds.append((seen[kind], place))
    return [place for _, place in sorted(rounds)]


def split_rows(
    rows: Sequence[dict[str, Any]], sizes: Mapping[str, int], order: Callable[[dict[str, Any]], str]
) -> dict[str, list[dict[str, Any]]]:
    """Disjoint splits of at most these sizes, drawn by a hash; fewer rows keep the proportions."""
    shuffled = sorted(rows, key=order)
    wanted = sum(sizes.values())
    share = min(1.0, len(shuffled) / wanted)
    splits: dict[str, list[dict[str, Any]]] = {}
    start = 0
    for split in SPLITS:
        count = max(1, int(sizes[split] * share))
        splits[split] = shuffled[start : start + count]
        start += count
    return splits
