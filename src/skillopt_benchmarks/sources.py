"""How the files of published benchmarks become split folders. Each benchmark's module has its `SOURCE`."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import skillopt_benchmarks
from skillopt.errors import SkillOptError, UserError
from skillopt.record.files import write_atomic
from skillopt.tasks.base import SPLITS, Item
from skillopt_benchmarks.rows import split_items, write_splits

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """One benchmark's data."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Items of each split at most, as in the paper where it has the benchmark; empty where the authors drew them."""
    files: str = ""
    """Which of the published files holds the items, as a pattern below the folder."""
    read: Callable[[Path], Iterable[Item]] = lambda _: ()
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
    prepare: Callable[[Path], dict[str, int]] | None = None
    """Writes the split folders, for data that another program fetches."""
    mini: bool = True
    """There is a small set of our own in its form."""


def prepare(name: str, source_dir: Path, out: Path, say: Say, kind: str = "") -> dict[str, int]:
    """Read the published files from `source_dir`, fetching them first where that is possible; write split folders."""
    module = _module(name)
    source: DataSource = module.SOURCE
    if kind and not source.kinds:
        raise UserError(f"--kind: {name} has no kinds; leave it out")
    if source.prepare:
        return source.prepare(out)
    source = _of_kind(name, source, kind)
    files = _files(source, source_dir)
    if not files and source.url:
        _fetch(source, source_dir, say, name)
        files = _files(source, source_dir)
    if not files:
        raise UserError(_by_hand(name, source, source_dir))
    counts = write_splits(out, _splits(source, files))
    if source.canary:
        write_atomic(out / "canary.txt", source.canary(files[0]) + "\n")
    for folder in source.folders:
        near = files[0].parent / folder
        if near.is_dir() and near.resolve() != (out / folder).resolve():
            shutil.copytree(near, out / folder, dirs_exist_ok=True)
    return counts


def prepared() -> list[str]:
    """The benchmarks that `data prepare` knows: modules of this package that say where their data comes from."""
    names = [module.name for module in pkgutil.iter_modules(skillopt_benchmarks.__path__)]
    return [name for name in names if hasattr(_module(name), "SOURCE")]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{skillopt_benchmarks.__name__}.{name}")


def _of_kind(name: str, source: DataSource, kind: str) -> DataSource:
    """The source, with the kind filled in."""
    if not source.kinds:
        return source
    if kind not in source.kinds:
        problem = f"{name} has no kind '{kind}'" if kind else f"{name} is prepared kind by kind"
        raise UserError(f"--kind: {problem}; name one of: {', '.join(source.kinds)}")
    files, url, how = (text.format(kind=kind) for text in (source.files, source.url, source.how))
    return replace(source, files=files, url=url, how=how)


def _splits(source: DataSource, files: list[Path]) -> dict[str, list[Item]]:
    by_id: dict[str, tuple[Item, Path]] = {}
    for file in files:
        for item in source.read(file):
            by_id.setdefault(item.id, (item, file))
    unique: dict[str, tuple[Item, Path]] = {}  # the same task under two ids could be in two splits
    for item, file in by_id.values():
        unique.setdefault(item.content(), (item, file))
    if len(unique) < len(SPLITS):
        raise UserError(f"{files[0]}: holds {len(unique)} usable items; three splits need at least three")
    if not source.split:
        return split_items([item for item, _ in unique.values()], source.sizes)
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for item, file in unique.values():
        splits[source.split(file)].append(item)
    for split, items in splits.items():
        if not items:
            raise UserError(f"{files[0].parent}: has no file of the split {split}; put there: {source.how}")
    return splits


def _files(source: DataSource, folder: Path) -> list[Path]:
    return sorted(folder.glob(source.files)) if folder.is_dir() else []


def _by_hand(name: str, source: DataSource, folder: Path) -> str:
    said = f"{name}: no {source.files} in {folder}. Put there: {source.how}. Then run the same command again."
    mini = f" Without any download, configs/{name}/mini.yaml runs on a small set of our own."
    return said + mini if source.mini else said


def _fetch(source: DataSource, folder: Path, say: Say, name: str) -> None:
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
