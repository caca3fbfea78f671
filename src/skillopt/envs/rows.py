"""Items of benchmarks whose answers are no texts (games, workbooks, puzzles): split folders of JSON rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from skillopt.envs.base import SPLITS, Item
from skillopt.errors import UserError
from skillopt.run.files import write_atomic

Options = TypeVar("Options", bound=BaseModel)


def read_options(model: type[Options], given: Mapping[str, Any]) -> Options:
    """`env.options` as the env's own model of them."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(model.model_fields)
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"env.options.{where}: {first['msg']}; known options are: {known}") from None


def read_splits(split_dir: str, needs: Sequence[str], how_to_get: str) -> dict[str, list[Item]]:
    """The items of `<split_dir>/{train,val,test}/items.json`. `needs` are fields besides id and question."""
    root = Path(split_dir)
    missing = [split for split in SPLITS if not (root / split / "items.json").is_file()]
    if not split_dir or missing:
        what = f"'{split_dir}' has no {missing[0]}/items.json" if split_dir else "is empty"
        raise UserError(f"env.split_dir: {what}; {how_to_get}")
    return {split: _read(root / split / "items.json", needs) for split in SPLITS}


def _read(path: Path, needs: Sequence[str]) -> list[Item]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(rows, list):
        raise UserError(f"{path}: must be a JSON array of items")
    items: list[Item] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        where = f"{path}: item {number}"
        if not isinstance(row, dict):
            raise UserError(f"{where}: must be an object with id, question, {', '.join(needs)}")
        for field in ("id", "question", *needs):
            if row.get(field) in (None, "", []):
                raise UserError(f"{where}: {field}: is missing or empty; it must be there")
        try:
            item = Item.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            raise UserError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if item.id in seen:
            raise UserError(f"{where}: id '{item.id}' stands twice in this split; ids must be unique")
        seen.add(item.id)
        items.append(item)
    return items


def field(item: Item, name: str) -> Any:
    """A field of the benchmark's own."""
    return (item.model_extra or {}).get(name)


def write_splits(folder: Path, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write rows where `read_splits` finds them."""
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
