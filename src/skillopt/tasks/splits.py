"""Splits a file or folder of tasks into train, val and test (seeded, stratified, without copies); saves the split.

The items of a file are split by content: an item stays in its split if only its id, its answers or its position in the
file change. Items of one `group` (such as questions on one document) stay together. If the tasks of a file have changed
since the split was written, this is an error, because a new split might move test items to train. The tasks of a folder
are split by name: a new or edited task does not move any other task.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from skillopt.config.options import first_problem
from skillopt.errors import UserError
from skillopt.record.files import read_json, write_json
from skillopt.tasks.base import SPLITS, Item, closed_set
from skillopt.tasks.columns import placed_tasks
from skillopt.tasks.data import Placed, Problem, content_hash, problem_lines, shortened
from skillopt.tasks.tables import is_hub_name

RATIOS = {"train": 0.5, "val": 0.25, "test": 0.25}
TASK_SETS = "task_sets"
"""The name of the folder for tasks that a program passed in."""


class SplitRow(BaseModel):
    id: str
    content: str
    stratum: str = ""


class SplitFile(BaseModel):
    """`NAME.split.json`: which item is in which split."""

    version: Literal[1]
    file: str = ""
    seed: int
    ratios: dict[str, float]
    items: dict[str, list[SplitRow]]


Change = Literal["refuse", "extend", "renew"]
"""The way to proceed if the tasks of a file differ from those in its saved split."""


def split_path(source: Path) -> Path:
    """The path of a split's file: next to the tasks; for a Hugging Face data set, in the working folder."""
    if is_hub_name(source):
        return Path(re.sub(r"[^\w.-]+", "-", source.as_posix()) + ".split.json")
    source = source.absolute() if source.is_dir() else source
    return source.with_name(f"{source.name if source.is_dir() else source.stem}.split.json")


def load_split(
    file: Path,
    *,
    ratios: Mapping[str, float] | None = None,
    seed: int = 0,
    answers: bool = True,
    change: Change = "refuse",
    columns: Mapping[str, str] | None = None,
) -> dict[str, list[Item]]:
    """The items of a file by split. The split is read from `NAME.split.json` next to the file; if this file does not
    exist, a split is made and written to it."""
    if file.is_dir():
        raise UserError(f"env.data: '{file}' is a folder; set env.split_dir to a folder with train/, val/ and test/")
    items = without_copies(placed_tasks(file, columns=columns, answers=answers))[0]
    saved = _read(split_path(file), "content") if change != "renew" else {}
    if saved and change == "refuse":
        _refuse_changes(file, split_path(file), items, saved)
    return _settled(file, items, saved, ratios or RATIOS, seed)


def split_folder(
    folder: Path, items: Sequence[Item], *, ratios: Mapping[str, float] | None = None, seed: int = 0
) -> dict[str, list[Item]]:
    """The tasks of a folder by split. The split is read from `NAME.split.json` next to the folder. New tasks are
    assigned to splits and added to this file."""
    saved = _read(split_path(folder), "id")
    assigned = {content_hash(item): saved[item.id] for item in items if item.id in saved}
    return _settled(folder, items, assigned, ratios or RATIOS, seed)


def _settled(
    source: Path, items: Sequence[Item], saved: Mapping[str, str], ratios: Mapping[str, float], seed: int
) -> dict[str, list[Item]]:
    """The items by split. Items that are not in `saved` (content hash → split) are assigned; a changed split is
    written."""
    here = {content_hash(item) for item in items}
    assigned = {name: split for name, split in saved.items() if name in here}
    split = divide(items, ratios, seed, assigned)
    if split != saved:
        _write(split_path(source), source, items, split, ratios, seed)
    return {name: [item for item in items if split[content_hash(item)] == name] for name in SPLITS}


def recorded_shares(file: Path) -> tuple[dict[str, float], int] | None:
    """The ratios and the seed of the split that is saved next to a file; None if no split is saved."""
    written = split_path(file)
    if not _read(written, "content"):
        return None
    about = SplitFile.model_validate(read_json(written))
    return about.ratios, about.seed


def without_copies(placed: Iterable[Placed]) -> tuple[list[Item], list[tuple[str, str]]]:
    """The tasks without copies; and for each copy, its location and the location of the task that it repeats. If tasks
    ask the same and have different answers, raises UserError with all of them: only a person can correct them."""
    unique, copies, wrong = sorted_copies(placed)
    if wrong:
        raise UserError("\n".join(problem_lines(wrong)))
    return [item for _, item in unique], copies


def sorted_copies(placed: Iterable[Placed]) -> tuple[list[Placed], list[tuple[str, str]], list[Problem]]:
    """Three lists: the tasks without copies; the location of each copy, with the location of the task that it repeats;
    and the tasks that ask the same but have different answers."""
    first: dict[str, Placed] = {}
    copies: list[tuple[str, str]] = []
    at_odds: dict[str, list[Placed]] = {}
    for where, item in placed:
        content = item.content()
        earlier, same = first.setdefault(content, (where, item))
        if same is item:
            continue
        if set(same.answers) != set(item.answers):
            at_odds.setdefault(content, [(earlier, same)]).append((where, item))
        copies.append((where, earlier))
    unique = [placed for content, placed in first.items() if content not in at_odds]
    return unique, copies, [_contradiction(group) for group in at_odds.values()]


def _contradiction(group: Sequence[Placed]) -> Problem:
    shown = (" | ".join(repr(answer[:40]) for answer in item.answers[:3]) or "none" for _, item in group)
    answers = "; ".join(dict.fromkeys(shown))
    return [where for where, _ in group], (
        f" ask the same ({shortened(group[0][1].question)!r}) and want different answers ({answers}); "
        "keep one of these tasks, or give each of them all right answers"
    )


def divide(
    items: Sequence[Item], ratios: Mapping[str, float], seed: int, assigned: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Assign items to splits; returns content hash → split. Every stratum is divided by the ratios as exactly as
    possible, and so are all items together.

    Items are assigned in the order of a hash of the seed and their content, so the order in the file does not matter.
    """
    result = dict(assigned or {})
    strata = stratum_of(items)
    sizes, dealt = Counter(strata.values()), Counter[tuple[str, str]]()
    for item in items:
        if (split := result.get(content_hash(item))) is not None:
            dealt[strata[item.id], split] += 1
    over = dict.fromkeys(SPLITS, 0.0)  # a split that got too few items of earlier strata gets more of later ones
    lack = dict.fromkeys(SPLITS, 0.0)
    reached: str | None = None
    for group in _in_order(_groups(items), strata, seed):
        stratum = strata[group[0].id]
        if stratum != reached:
            over = {split: over[split] + lack[split] for split in SPLITS}
            lack = {split: ratios[split] * sizes[stratum] - dealt[stratum, split] for split in SPLITS}
            reached = stratum
        new = [item for item in group if content_hash(item) not in result]
        together = next((result[content_hash(item)] for item in group if content_hash(item) in result), "")
        split = together or max(SPLITS, key=lambda name: (round(2 * lack[name] + over[name], 9), ratios[name]))
        result |= {content_hash(item): split for item in new}
        lack[split] -= len(new)
    for name in SPLITS:
        if name not in result.values():
            raise UserError(
                f"the {name} split would be empty: {len(items)} different tasks are too few for the shares "
                f"{', '.join(f'{split} {ratios[split]:g}' for split in SPLITS)}; add tasks, or change env.split"
            )
    return result


def in_turn(types: Sequence[str]) -> list[int]:
    """The indices of `types`, ordered so that the types take turns."""
    seen: Counter[str] = Counter()
    rounds = []
    for index, kind in enumerate(types):
        seen[kind] += 1
        rounds.append((seen[kind], index))
    return [index for _, index in sorted(rounds)]


def stratum_of(items: Sequence[Item]) -> dict[str, str]:
    """The stratum of each item, by id: its type, else its answer if the answers are a small closed set."""
    if any(item.type for item in items):
        return {item.id: item.type for item in items}
    closed = bool(closed_set(items))
    return {item.id: item.answers[0] if closed else "" for item in items}


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """The items in groups that stay together in one split, by their field `group`."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        name = (item.model_extra or {}).get("group")
        groups.setdefault(f"item/{item.id}" if name in {None, ""} else f"group/{name}", []).append(item)
    return list(groups.values())


def _in_order(groups: Iterable[list[Item]], strata: Mapping[str, str], seed: int) -> list[list[Item]]:
    """The groups, ordered by stratum. Within a stratum, larger groups come first, because they are harder to assign;
    groups of the same size are ordered by a hash."""

    def key(group: list[Item]) -> tuple[str, int, str]:
        name = "/".join(sorted(content_hash(item) for item in group))
        drawn = hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()
        return strata[group[0].id], -len(group), drawn

    return sorted(groups, key=key)


def _refuse_changes(file: Path, written: Path, items: Sequence[Item], saved: Mapping[str, str]) -> None:
    now = {content_hash(item): item.id for item in items}
    new = [item_id for name, item_id in now.items() if name not in saved]
    gone = len(saved.keys() - now.keys())
    if not new and not gone:
        return
    shown = f" ({', '.join(new[:3])}{' …' if len(new) > 3 else ''})" if new else ""
    raise UserError(
        f"{file}: {len(new)} tasks are new or changed{shown} and {gone} are gone since the split was written to "
        f"{written}. To distribute the new tasks and keep the others in their splits, run `skillopt split "
        f"{shlex.quote(str(file))} --extend`. To make a new split, use `--renew` instead; do not compare test scores "
        "of the new split with earlier test scores"
    )


def _read(written: Path, key: Literal["content", "id"]) -> dict[str, str]:
    """The split of each item in a split's file, by content hash or id; empty if there is no file."""
    if not written.exists():
        return {}
    try:
        data = SplitFile.model_validate(read_json(written.resolve()))
        return {getattr(row, key): name for name in SPLITS for row in data.items[name]}
    except ValidationError as error:
        problem = first_problem(error)
    except (ValueError, KeyError, TypeError) as error:
        problem = str(error)
    raise UserError(
        f"{written}: cannot be read as a split ({problem}); repair the file, or remove it to get a new split"
    )


def _write(
    written: Path, file: Path, items: Sequence[Item], split: Mapping[str, str], ratios: Mapping[str, float], seed: int
) -> None:
    """Write the split's file. If its folder is read-only, nothing is written: the same tasks and seed give the same
    split in the next run, too."""
    strata = stratum_of(items)
    rows = {
        name: [
            SplitRow(id=item.id, content=content_hash(item), stratum=strata[item.id])
            for item in sorted(items, key=lambda item: item.id)
            if split[content_hash(item)] == name
        ]
        for name in SPLITS
    }
    about = SplitFile(version=1, file=file.name, seed=seed, ratios=dict(ratios), items=rows)
    with suppress(PermissionError):
        write_json(written, about.model_dump())


def how_to_enlarge(settings: Mapping[str, Any], split: str) -> str:
    """How to get more tasks into a split. `settings` are the config keys of a run (`env.data`, …); if they do not show
    how, the text is empty.

    Paths below the working folder are shown relative to this folder.
    """
    options = settings.get("env.options") or {}
    if split in options.get("limit", {}):
        return f"raise env.options.limit.{split}"
    if split in options:
        return f"raise env.options.{split}"
    if file := _from_here(settings.get("env.data") or ""):
        if settings.get("env.name") == "folders":
            return f"add task folders to {file}"
        more = f"take more of {file}" if is_hub_name(file) else f"add tasks to {file}"
        return f"{more}, then run `skillopt split {shlex.quote(file)} --extend`"
    folder = _from_here(settings.get("env.split_dir") or "")
    if Path(folder).parent.name == TASK_SETS:
        return "pass more tasks"
    return f"add tasks to {folder}/{split}" if folder else ""


def _from_here(path: str) -> str:
    """The path; if it is below the working folder, relative to this folder."""
    plain = os.path.normpath(path) if path else ""
    return os.path.relpath(plain) if Path(plain).is_relative_to(Path.cwd()) else plain


def describe(split: Mapping[str, Sequence[Item]]) -> list[str]:
    """One line per split, with its number of items in all and per stratum."""
    strata = stratum_of([item for name in SPLITS for item in split[name]])
    lines = []
    for name in SPLITS:
        counts = Counter(strata[item.id] for item in split[name])
        of = ", ".join(f"{count} {stratum}" for stratum, count in sorted(counts.items()) if stratum)
        lines.append(f"{name}: {len(split[name])} items" + (f" ({of})" if of and len(counts) <= 12 else ""))
    return lines


def parse_ratios(ratios: Mapping[str, float]) -> dict[str, float]:
    """The shares, scaled to sum to one; whole numbers such as {train: 2, val: 1, test: 1} are allowed."""
    if set(ratios) != set(SPLITS) or not all(0 < share < math.inf for share in ratios.values()):
        raise UserError(f"env.split: needs a positive share for each of {', '.join(SPLITS)}; got {json.dumps(ratios)}")
    total = sum(ratios.values())
    return {name: ratios[name] / total for name in SPLITS}
