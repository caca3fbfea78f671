"""How the files of published benchmarks become split folders. Each benchmark's module has its `SOURCE`."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import skillopt_benchmarks
from skillopt.errors import SkillOptError, UserError
from skillopt.tasks.base import SPLITS, Item
from skillopt_benchmarks.rows import split_items, write_splits

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """One benchmark's data."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Items of each split at most, as in the paper where it has the benchmark."""
    files: str = ""
    """Which of the published files holds the items, as a pattern below the folder."""
    read: Callable[[Path], Iterable[Item]] = lambda _: ()
    url: str = ""
    """What can be fetched without an account; empty where an account is needed."""
    folders: tuple[str, ...] = ()
    """Folders next to the items that belong to the data."""
    how: str = ""
    """What to fetch by hand, and where it goes."""
    prepare: Callable[[Path], dict[str, int]] | None = None
    """Writes the split folders, for data that another program fetches."""


def prepare(name: str, source_dir: Path, out: Path, say: Say) -> dict[str, int]:
    """Read the published files from `source_dir`, fetching them first where that is possible; write split folders."""
    source: DataSource = _module(name).SOURCE
    if source.prepare:
        return source.prepare(out)
    files = _files(source, source_dir)
    if not files and source.url:
        _fetch(source, source_dir, say, name)
        files = _files(source, source_dir)
    if not files:
        raise UserError(_by_hand(name, source, source_dir))
    counts = write_splits(out, _splits(source, files))
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


def _splits(source: DataSource, files: list[Path]) -> dict[str, list[Item]]:
    by_id: dict[str, Item] = {}
    for item in (item for file in files for item in source.read(file)):
        by_id.setdefault(item.id, item)
    unique: dict[str, Item] = {}  # the same task under two ids could be in two splits
    for item in by_id.values():
        unique.setdefault(item.content(), item)
    if len(unique) < len(SPLITS):
        raise UserError(f"{files[0]}: holds {len(unique)} usable items; three splits need at least three")
    return split_items(list(unique.values()), source.sizes)


def _files(source: DataSource, folder: Path) -> list[Path]:
    return sorted(folder.glob(source.files)) if folder.is_dir() else []


def _by_hand(name: str, source: DataSource, folder: Path) -> str:
    return (
        f"{name}: no {source.files} in {folder}. Put there: {source.how}. Then run the same command again. Without any "
        f"download, configs/{name}/mini.yaml runs on a small set of our own."
    )


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
