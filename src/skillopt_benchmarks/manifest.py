"""Split manifests: lists of ids that say which published item is in which split."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from skillopt.errors import UserError
from skillopt.tasks.base import SPLITS, Item

NAMES = {
    "train": ("train",),
    "val": ("val", "valid", "validation", "dev", "valid_seen"),
    "test": ("test", "valid_unseen"),
}
"""The names that a manifest may use for each split."""
FILES = ("{name}.json", "{name}.jsonl", "{name}.txt", "{name}/items.json", "{name}/items.jsonl")
ID_FIELDS = ("id", "qid", "key", "question_id", "questionId", "uid")
"""If a manifest has JSON objects in place of ids, the id of an object is in one of these fields."""
_SHOWN = 5


def read_manifest(path: Path) -> dict[str, list[str]]:
    """Read the ids of each split from a JSON file `{"train": […], …}`, or from a folder with one file per split."""
    if path.is_dir():
        rows = {split: _rows(file) for split in SPLITS if (file := _file_of(path, split))}
        form = f"a file for each split, such as {', '.join(FILES).format(name='train')}"
    else:
        tree = _parsed(path, _text(path))
        tree = tree.get("splits", tree) if isinstance(tree, dict) else {}
        tree = tree if isinstance(tree, dict) else {}
        rows = {split: tree[name] for split in SPLITS for name in NAMES[split] if name in tree}
        form = '{"train": [ids], "val": [ids], "test": [ids]}'
    if lacking := [split for split in SPLITS if split not in rows]:
        raise UserError(f"--manifest: {path} has no list of ids for {', '.join(lacking)}; it must hold {form}")
    ids_by_split = {split: [_id(row, path, split) for row in _list(rows[split], path, split)] for split in SPLITS}
    _refuse_repeated(ids_by_split, path)
    return ids_by_split


def select_items(
    ids_by_split: Mapping[str, Sequence[str]], items: Iterable[Item], path: Path, how: str
) -> dict[str, list[Item]]:
    """Return the items that the manifest names, in its order. Raise UserError if an id belongs to no item."""
    by_id: dict[str, Item] = {}
    for item in items:
        by_id.setdefault(item.id, item)
    if lacking := [name for ids in ids_by_split.values() for name in ids if name not in by_id]:
        shown = ", ".join(lacking[:_SHOWN]) + (" …" if len(lacking) > _SHOWN else "")
        total = sum(map(len, ids_by_split.values()))
        raise UserError(
            f"--manifest: {path}: {len(lacking)} of {total} ids are not among the {len(by_id)} items that were "
            f"read: {shown}. Put all files of the data set into one folder, and give this folder with --from. The "
            f"files are: {how}"
        )
    return {split: [by_id[name] for name in ids] for split, ids in ids_by_split.items()}


def _file_of(folder: Path, split: str) -> Path | None:
    files = (folder / form.format(name=name) for name in NAMES[split] for form in FILES)
    return next((file for file in files if file.is_file()), None)


def _rows(file: Path) -> JsonValue:
    text = _text(file)
    if file.suffix == ".json":
        return _parsed(file, text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [_parsed(file, line) for line in lines] if file.suffix == ".jsonl" else list(lines)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--manifest: {file}: cannot be read ({error})") from None


def _parsed(file: Path, text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--manifest: {file}: is not JSON ({error})") from None
    return value


def _list(rows: JsonValue, path: Path, split: str) -> list[JsonValue]:
    rows = rows.get("ids", rows.get("items")) if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not rows:
        raise UserError(f"--manifest: {path}: {split}: must be a list of at least one id")
    return rows


def _id(row: JsonValue, path: Path, split: str) -> str:
    value = next((row[name] for name in ID_FIELDS if name in row), None) if isinstance(row, dict) else row
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(
            f"--manifest: {path}: {split}: {json.dumps(row)[:80]} is not an id; write a text, a number, or an object "
            f"with one of the fields {', '.join(ID_FIELDS)}"
        )
    return str(value)


def _refuse_repeated(ids_by_split: Mapping[str, Sequence[str]], path: Path) -> None:
    first: dict[str, str] = {}
    for split, ids in ids_by_split.items():
        for name in ids:
            if name in first:
                raise UserError(
                    f"--manifest: {path}: '{name}' is in {first[name]} and in {split}; remove the id from one of them"
                )
            first[name] = split
