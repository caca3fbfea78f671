"""Where the published benchmarks come from, and how their files become split folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from skillopt.envs import choices, docvqa, officeqa, plain, searchqa, spreadsheet
from skillopt.envs.base import SPLITS
from skillopt.envs.rows import in_turn, split_rows, write_splits
from skillopt.errors import SkillOptError, UserError
from skillopt.run.files import write_atomic

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One benchmark's data."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Items of each split at most, as in the paper where it has the benchmark; empty where the authors drew them."""
    files: str
    """Which of the published files holds the items, as a pattern below the folder."""
    read: Callable[[Path], Iterable[dict[str, Any]]]
    url: str = ""
    """What can be fetched without an account; empty where an account is needed."""
    folders: tuple[str, ...] = ()
    """Folders next to the items that belong to the data."""
    how: str = ""
    """What to fetch by hand, and where it goes."""
    kinds: tuple[str, ...] = ()
    """Where each kind of task has its own file: `{kind}` in `files` and `url` is the one that is asked for."""
    split: Callable[[Path], str] | None = None
    """Which split a file is, where the authors have drawn them."""
    canary: Callable[[Path], str] | None = None
    """A line in a file that has to stay with every copy."""
    mini: bool = True
    """There is a small set of our own in its form."""


SOURCES: dict[str, Source] = {
    "searchqa": Source(
        sizes={"train": 400, "val": 200, "test": 1400},
        files="*.jsonl*",
        read=searchqa.published,
        url="https://s3.us-east-2.amazonaws.com/mrqa/release/v2/dev/SearchQA.jsonl.gz",
        how="SearchQA.jsonl.gz of the MRQA 2019 shared task",
    ),
    "docvqa": Source(
        sizes={"train": 107, "val": 53, "test": 374},
        files="val_v1.0*.json",
        read=docvqa.published,
        folders=("documents",),
        how="val_v1.0_withQT.json and the folders documents/ and ocr/ of the single-page task (rrc.cvc.uab.es/?ch=17; "
        "needs an account)",
    ),
    "spreadsheetbench": Source(
        sizes={"train": 80, "val": 40, "test": 280},
        files="**/dataset.json",
        read=spreadsheet.published,
        url="https://huggingface.co/datasets/KAKA22/SpreadsheetBench/resolve/main/spreadsheetbench_verified_400.tar.gz",
        folders=("spreadsheet",),
        how="dataset.json and the folder spreadsheet/ of SpreadsheetBench (github.com/RUCKBReasoning/SpreadsheetBench)",
    ),
    "livemathematicianbench": Source(
        sizes={"train": 35, "val": 17, "test": 125},
        files="**/qa_*_final.json",
        read=choices.published,
        url="https://huggingface.co/datasets/LiveMathematicianBench/LiveMathematicianBench/resolve/main/data/202511/"
        "qa_202511_final.json",
        how="qa_YYYYMM_final.json files (huggingface.co/datasets/LiveMathematicianBench/LiveMathematicianBench)",
    ),
    "officeqa": Source(
        sizes={"train": 50, "val": 24, "test": 172},
        files="officeqa_*.csv",
        read=officeqa.published,
        folders=("documents",),
        how="officeqa_full.csv (huggingface.co/datasets/databricks/officeqa; access is granted on request), and the "
        "parsed bulletins' .txt files in a folder documents/",
    ),
    "bbh": Source(
        sizes={"train": 100, "val": 50, "test": 100},
        files="**/{kind}.json",
        read=plain.bbh,
        url="https://raw.githubusercontent.com/suzgunmirac/BIG-Bench-Hard/main/bbh/{kind}.json",
        how="{kind}.json from the folder bbh/ of BIG-Bench Hard (github.com/suzgunmirac/BIG-Bench-Hard)",
        kinds=plain.BBH_KINDS,
        canary=plain.bbh_canary,
        mini=False,
    ),
    "formula": Source(
        files="**/formula_*.jsonl",
        read=plain.formula,
        url="https://github.com/ace-agent/ace/archive/refs/heads/main.tar.gz",
        how="formula_train_subset_500.jsonl, formula_val_subset_300.jsonl and formula_test.jsonl of ACE's finance data "
        "(github.com/ace-agent/ace)",
        split=plain.formula_split,
        mini=False,
    ),
}


def prepare(name: str, source_dir: Path, out: Path, say: Say, kind: str = "") -> dict[str, int]:
    """Read the published files from `source_dir`, fetching them first where that is possible; write split folders."""
    source = _of_kind(name, kind)
    if source is None:
        return prepare_alfworld(out)
    found = _files(source, source_dir)
    if not found and source.url:
        _fetch(source, source_dir, say, name)
        found = _files(source, source_dir)
    if not found:
        raise UserError(_by_hand(name, source, source_dir))
    splits = _splits(source, found)
    write_splits(out, splits)
    if source.canary:
        write_atomic(out / "canary.txt", source.canary(found[0]) + "\n")
    for folder in source.folders:
        near = found[0].parent / folder
        if near.is_dir() and near.resolve() != (out / folder).resolve():
            shutil.copytree(near, out / folder, dirs_exist_ok=True)
    return {split: len(items) for split, items in splits.items()}


def _of_kind(name: str, kind: str) -> Source | None:
    """The source, with the kind filled in; None for alfworld, whose games another program fetches."""
    source = SOURCES.get(name)
    kinds = source.kinds if source else ()
    if kind and not kinds:
        raise UserError(f"--kind: {name} has no kinds; leave it out")
    if source is None or not kinds:
        return source
    if kind not in kinds:
        said = f"{name} has no kind '{kind}'" if kind else f"{name} is prepared kind by kind"
        raise UserError(f"--kind: {said}; name one of: {', '.join(kinds)}")
    return replace(source, **{part: getattr(source, part).format(kind=kind) for part in ("files", "url", "how")})


def _splits(source: Source, found: list[Path]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, dict[str, Any]] = {}
    drawn: dict[str, str] = {}
    for path in found:
        for row in source.read(path):
            rows.setdefault(str(row["id"]), row)
            if source.split:
                drawn.setdefault(str(row["id"]), source.split(path))
    unique = _unique(rows.values())
    if len(unique) < len(SPLITS):
        raise UserError(f"{found[0]}: holds {len(unique)} usable items; three splits need at least three")
    if not source.split:
        return split_rows(unique, source.sizes, lambda row: _hash(str(row["id"])))
    splits = {split: [row for row in unique if drawn[str(row["id"])] == split] for split in SPLITS}
    for split, own in splits.items():
        if not own:
            raise UserError(f"{found[0].parent}: has no file of the split {split}; put there: {source.how}")
    return splits


def _unique(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same task under two ids could be in two splits."""
    kept: dict[str, dict[str, Any]] = {}
    for row in rows:
        kept.setdefault(" ".join(f"{row['question']}\n{row.get('context', '')}".casefold().split()), row)
    return list(kept.values())


def _hash(text: str) -> str:
    return hashlib.sha256(f"split/{text}".encode()).hexdigest()


def _files(source: Source, folder: Path) -> list[Path]:
    return sorted(folder.glob(source.files)) if folder.is_dir() else []


def _by_hand(name: str, source: Source, folder: Path) -> str:
    said = f"{name}: no {source.files} in {folder}. Put there: {source.how}. Then run the same command again."
    mini = f" Without any download, configs/{name}/mini.yaml runs on a small set of our own."
    return said + mini if source.mini else said


def _fetch(source: Source, folder: Path, say: Say, name: str) -> None:
    """Download into the folder, whole or not at all, and unpack archives."""
    url = source.url
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / url.rpartition("/")[2]
    say(f"fetching {url}")
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with urllib.request.urlopen(url, timeout=30) as reply, unfinished.open("wb") as file:  # noqa: S310 - https, ours
            shutil.copyfileobj(reply, file)
    except (OSError, urllib.error.URLError) as error:
        unfinished.unlink(missing_ok=True)
        raise SkillOptError(f"{url} cannot be reached ({error}). {_by_hand(name, source, folder)}") from None
    unfinished.replace(target)
    if target.name.endswith((".tar.gz", ".tgz")):
        with tarfile.open(target) as archive:
            archive.extractall(folder, filter="data")


ALFWORLD_SPLITS = {"train": ("train", 39), "val": ("valid_seen", 18), "test": ("valid_unseen", 134)}
"""The official folder that each split draws from, and how many games it takes."""


def prepare_alfworld(out: Path) -> dict[str, int]:
    """Items for the official games below ALFWORLD_DATA, task types in turn."""
    data = os.environ.get("ALFWORLD_DATA", "")
    root = Path(data) / "json_2.1.1"
    if not data or not root.is_dir():
        raise UserError(
            "alfworld: set ALFWORLD_DATA to the folder that holds json_2.1.1/ (`alfworld-download`, which comes with "
            "the package, fetches it). Or make games in its format: `skillopt data generate alfworld --out FOLDER`"
        )
    splits = {}
    for split, (folder, count) in ALFWORLD_SPLITS.items():
        games = sorted((root / folder).glob("*/trial_*/game.tw-pddl"), key=lambda path: _hash(str(path.parent.name)))
        rows = [row for path in games if (row := _alfworld_row(path, Path(data)))]
        if not rows:
            raise UserError(f"{root / folder}: holds no game.tw-pddl; run `alfworld-download`")
        splits[split] = [rows[place] for place in in_turn([row["type"] for row in rows])[:count]]
    write_splits(out, splits)
    return {split: len(rows) for split, rows in splits.items()}


def _alfworld_row(path: Path, data: Path) -> dict[str, Any] | None:
    """An item for a game; None for one that cannot be won, or that moves or slices what the six types leave alone."""
    game = json.loads(path.read_text(encoding="utf-8"))
    about = json.loads(path.with_name("traj_data.json").read_text(encoding="utf-8"))
    if not game.get("solvable", True) or "movable" in path.parent.parent.name or "Sliced" in path.parent.parent.name:
        return None
    goal = game["grammar"].split("Your task is to: ", 1)[-1].split('"')[0].split("\n")[0].strip().rstrip(".;")
    return {
        "id": f"{path.parent.parent.name}/{path.parent.name}",
        "question": f"Your task is to: {goal or about['turk_annotations']['anns'][0]['task_desc']}.",
        "type": about["task_type"],
        "game": str(path.relative_to(data)),
    }
