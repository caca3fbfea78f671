"""Reads and writes the items of benchmarks (games, workbooks, puzzles, …) as split folders of JSON rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.record.files import write_atomic
from skillopt.tasks.base import SPLITS, Item
from skillopt.tasks.data import read_splits


def read_rows(config: EnvConfig, needs: Sequence[str], how_to_get: str = "") -> dict[str, list[Item]]:
    """Read the items of a benchmark's split folder. `needs` are the fields that every item must have."""
    split_dir = config.split_dir
    how_to_get = how_to_get or f"run `skillopt data prepare {config.name}`, or use configs/{config.name}/mini.yaml"
    if not split_dir or not all((Path(split_dir) / split).is_dir() for split in SPLITS):
        what = f"'{split_dir}' does not hold train/, val/ and test/" if split_dir else "is empty"
        raise UserError(f"env.split_dir: {what}; {how_to_get}")
    splits = read_splits(split_dir, answers="answers" in needs)
    for split, items in splits.items():
        for item in items:
            for name in needs:
                if name != "answers" and item.get(name) in (None, "", []):
                    raise UserError(f"{split_dir}/{split}: item '{item.id}': {name}: is missing or empty; add it")
    return splits


def plain_item(name: str, number: int, question: object, answer: object) -> Item:
    """Return an item that is a question with one answer."""
    return Item(id=f"{name}-{number:03}", question=str(question).strip(), answers=(str(answer).strip(),))


def write_splits(folder: Path, splits: Mapping[str, Sequence[Item]]) -> dict[str, int]:
    """Write items as files that `read_rows` can read. Return the number of items in each split."""
    for split, items in splits.items():
        rows = [item.model_dump(mode="json", exclude_unset=True) for item in items]
        write_atomic(folder / split / "items.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    return {split: len(items) for split, items in splits.items()}


def split_items(items: Sequence[Item], sizes: Mapping[str, int]) -> dict[str, list[Item]]:
    """Divide items into splits of at most these sizes. A hash of an item's id decides its split. If there are too few
    items, the splits keep the proportions of `sizes`."""
    shuffled = sorted(items, key=lambda item: split_hash(item.id))
    share = min(1.0, len(shuffled) / sum(sizes.values()))
    splits: dict[str, list[Item]] = {}
    start = 0
    for split in SPLITS:
        count = max(1, int(sizes[split] * share))
        splits[split] = shuffled[start : start + count]
        start += count
    return splits


def split_hash(text: str) -> str:
    return hashlib.sha256(f"split/{text}".encode()).hexdigest()
