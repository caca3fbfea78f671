"""One file becomes train, val and test: seeded, stratified, without copies, and saved next to the file.

The split is kept by content: an item stays where it is when its id, its answers or its place in the file change. Items
of the same `group` (questions about one document, say) stay together. A file whose tasks have changed since the split
was written is not split anew in silence, since test items might then be trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from skillopt.envs.base import SPLITS, Item, closed_set
from skillopt.envs.data import Placed, content_hash, placed_items, places
from skillopt.errors import UserError
from skillopt.run.files import read_json, write_json

RATIOS = {"train": 0.5, "val": 0.25, "test": 0.25}
TASK_SETS = "task_sets"
"""The folder of tasks that a program passed in."""
VERSION = 1
Change = Literal["refuse", "extend", "renew"]
"""What to do where the file and its written split differ."""


def split_path(file: Path) -> Path:
    return file.with_name(f"{file.stem}.split.json")


def load_split(
    file: Path,
    *,
    ratios: Mapping[str, float] | None = None,
    seed: int = 0,
    answers: bool = True,
    change: Change = "refuse",
) -> dict[str, list[Item]]:
    """The items of a file by split, as the split next to it says; if there is none, it is made and written."""
    if file.is_dir():
        raise UserError(f"env.data: '{file}' is a folder; one with train/, val/ and test/ belongs in env.split_dir")
    items = without_copies(placed_items(file, answers=answers))[0]
    written = split_path(file)
    known = _read(written) if change != "renew" else {}
    if known and change == "refuse":
        _refuse_changes(file, written, items, known)
    here = {content_hash(item) for item in items}
    kept = {name: split for name, split in known.items() if name in here}
    split = divide(items, ratios or RATIOS, seed, kept)
    if split != known:
        _write(written, file, items, split, ratios or RATIOS, seed)
    return {name: [item for item in items if split[content_hash(item)] == name] for name in SPLITS}


def without_copies(placed: Iterable[Placed]) -> tuple[list[Item], list[tuple[str, str]]]:
    """Each task once, and the places of copies, each with that of the first. Tasks that ask the same and want different
    answers are a mistake that only a person can correct: all of them are named."""
    first: dict[str, Placed] = {}
    copies: list[tuple[str, str]] = []
    at_odds: dict[str, list[Placed]] = {}
    for where, item in placed:
        content = item.content()
        known, same = first.setdefault(content, (where, item))
        if same is item:
            continue
        if set(same.answers) != set(item.answers):
            at_odds.setdefault(content, [(known, same)]).append((where, item))
        copies.append((where, known))
    if at_odds:
        raise UserError("\n".join(_contradiction(group) for group in at_odds.values()))
    return [item for _, item in first.values()], copies


def _contradiction(group: Sequence[Placed]) -> str:
    answers = "; ".join(dict.fromkeys(_some(item.answers) for _, item in group))
    question = " ".join(group[0][1].question.split())
    asked = question if len(question) <= 60 else f"{question[:59]}…"
    return (
        f"{places([where for where, _ in group])} ask the same ({asked!r}) and want different answers ({answers}); "
        "keep one, or give each of them all right answers"
    )


def _some(answers: Sequence[str]) -> str:
    return " | ".join(repr(answer[:40]) for answer in answers[:3]) or "none"


def divide(
    items: Sequence[Item], ratios: Mapping[str, float], seed: int, kept: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Content hash → split. Every stratum is divided by the ratios as nearly as it goes, and so is the whole.

    The order in which items are dealt out is a hash of the seed and their content: the file's order does not matter.
    """
    found = dict(kept or {})
    strata = stratum_of(items)
    sizes, dealt = Counter(strata.values()), Counter[tuple[str, str]]()
    for item in items:
        if (split := found.get(content_hash(item))) is not None:
            dealt[strata[item.id], split] += 1
    over = dict.fromkeys(SPLITS, 0.0)  # what the strata before were short of: the next give it back
    lack = dict.fromkeys(SPLITS, 0.0)
    reached: str | None = None
    for group in _in_order(_groups(items), strata, seed):
        stratum = strata[group[0].id]
        if stratum != reached:
            over = {split: over[split] + lack[split] for split in SPLITS}
            lack = {split: ratios[split] * sizes[stratum] - dealt[stratum, split] for split in SPLITS}
            reached = stratum
        new = [item for item in group if content_hash(item) not in found]
        together = next((found[content_hash(item)] for item in group if content_hash(item) in found), "")
        split = together or max(SPLITS, key=lambda name: (round(2 * lack[name] + over[name], 9), ratios[name]))
        found |= {content_hash(item): split for item in new}
        lack[split] -= len(new)
    for name in SPLITS:
        if name not in found.values():
            raise UserError(
                f"the {name} split would be empty: {len(items)} different tasks are too few to divide by "
                f"{', '.join(f'{split} {ratios[split]:g}' for split in SPLITS)}; add tasks, or change env.split"
            )
    return found


def stratum_of(items: Sequence[Item]) -> dict[str, str]:
    """Item id → what it is stratified by: its type, else its answer where the answers are a small closed set."""
    if any(item.type for item in items):
        return {item.id: item.type for item in items}
    closed = bool(closed_set(items))
    return {item.id: item.answers[0] if closed else "" for item in items}


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """Items that stay together, by their field `group`."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        name = (item.model_extra or {}).get("group")
        groups.setdefault(f"item/{item.id}" if name in {None, ""} else f"group/{name}", []).append(item)
    return list(groups.values())


def _in_order(groups: Iterable[list[Item]], strata: Mapping[str, str], seed: int) -> list[list[Item]]:
    """By stratum, then by hash; large groups first, since they fit in fewest places."""

    def key(group: list[Item]) -> tuple[str, int, str]:
        name = "/".join(sorted(content_hash(item) for item in group))
        drawn = hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()
        return strata[group[0].id], -len(group), drawn

    return sorted(groups, key=key)


def _refuse_changes(file: Path, written: Path, items: Sequence[Item], known: Mapping[str, str]) -> None:
    now = {content_hash(item): item.id for item in items}
    new = [item_id for name, item_id in now.items() if name not in known]
    gone = len(known.keys() - now.keys())
    if not new and not gone:
        return
    shown = f" ({', '.join(new[:3])}{' …' if len(new) > 3 else ''})" if new else ""
    raise UserError(
        f"{file}: {len(new)} tasks are new or changed{shown} and {gone} are gone since the split was written to "
        f"{written}; `skillopt split {file} --extend` leaves all others where they are and deals out the new ones, "
        f"`--renew` makes another split (then do not compare test scores with earlier ones)"
    )


def _read(written: Path) -> dict[str, str]:
    if not written.exists():
        return {}
    try:
        data: dict[str, Any] = read_json(written)
        split = {str(row["content"]): name for name in SPLITS for row in data["items"][name]}
        if data["version"] != VERSION:
            raise ValueError("of another version")
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{written}: cannot be read as a split ({error}); repair it, or remove it for a new one"
        ) from None
    return split


def _write(
    written: Path, file: Path, items: Sequence[Item], split: Mapping[str, str], ratios: Mapping[str, float], seed: int
) -> None:
    """Where the folder cannot be written to, nothing is lost: the same file and seed give the same split."""
    strata = stratum_of(items)
    rows = {
        name: [
            {"id": item.id, "content": content_hash(item), "stratum": strata[item.id]}
            for item in sorted(items, key=lambda item: item.id)
            if split[content_hash(item)] == name
        ]
        for name in SPLITS
    }
    about = {"version": VERSION, "file": file.name, "seed": seed, "ratios": dict(ratios)}
    try:
        write_json(written, {**about, "items": rows})
    except PermissionError:
        return


def how_to_enlarge(settings: Mapping[str, Any], split: str) -> str:
    """How a user gets more tasks into a split, by the settings of a run ("env.data": …); empty where we cannot know.

    Files are called by their names alone, since the sentence is kept with the run, wherever that is.
    """
    options = settings.get("env.options") or {}
    if split in options.get("limit", {}):
        return f"raise env.options.limit.{split}"
    if split in options:
        return f"raise env.options.{split}"
    if file := Path(settings.get("env.data") or "").name:
        return f"add tasks to {file}, then run `skillopt split {file} --extend`"
    folder = Path(settings.get("env.split_dir") or "")
    if folder.parent.name == TASK_SETS:
        return "pass more tasks"
    return f"add tasks to {folder.name}/{split}" if folder.name else ""


def describe(split: Mapping[str, Sequence[Item]]) -> list[str]:
    """The split in lines: how many, and of which stratum."""
    strata = stratum_of([item for name in SPLITS for item in split[name]])
    lines = []
    for name in SPLITS:
        counts = Counter(strata[item.id] for item in split[name])
        of = ", ".join(f"{count} {stratum}" for stratum, count in sorted(counts.items()) if stratum)
        lines.append(f"{name}: {len(split[name])} items" + (f" ({of})" if of and len(counts) <= 12 else ""))
    return lines


def parse_ratios(ratios: Mapping[str, float]) -> dict[str, float]:
    """Shares that sum to one; whole numbers such as {train: 2, val: 1, test: 1} are welcome."""
    if set(ratios) != set(SPLITS) or not all(share > 0 for share in ratios.values()):
        raise UserError(f"env.split: needs a positive share for each of {', '.join(SPLITS)}; got {json.dumps(ratios)}")
    total = sum(ratios.values())
    return {name: ratios[name] / total for name in SPLITS}
