"""Makes split folders from the files of published benchmarks. Each benchmark's module has its `SOURCE`."""

from __future__ import annotations

import hashlib
import http.client
import importlib
import pkgutil
import shutil
import tarfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import skillopt_benchmarks
from skillopt.config import EnvConfig
from skillopt.config.shipped import shipped
from skillopt.errors import SkillOptError, UserError
from skillopt.record.files import write_atomic
from skillopt.tasks.base import SPLITS, Item
from skillopt_benchmarks.manifest import read_manifest, select_items
from skillopt_benchmarks.rows import split_items, write_splits

Progress = Callable[[int, int, str], None]
"""A function that is called with the bytes so far, the total bytes (0 if unknown), and a description of the work."""
BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """The source of a benchmark's data, and how to read it."""

    sizes: dict[str, int] = field(default_factory=dict)
    """The maximum number of items of each split; for a benchmark of the paper, the paper's numbers. Empty if the set
    has its own splits."""
    files: str = ""
    """The pattern of the published files with the items, relative to their folder."""
    read: Callable[[Path], Iterable[Item]] = lambda _: ()
    url: str = ""
    """The file that can be fetched without an account; empty if an account is needed."""
    sha256: str = ""
    """The SHA-256 of the file at `url`; empty if its authors may change it."""
    bytes: int = 0
    """The size of the file at `url`; 0 if its authors may change it."""
    folders: tuple[str, ...] = ()
    """Folders that belong to the data. They are next to the files with the items."""
    how: str = ""
    """The files to fetch by hand, and where to get them."""
    kinds: tuple[str, ...] = ()
    """The kinds of tasks, if each kind has its own file: `{kind}` in `files` and `url` stands for the chosen kind."""
    split: Callable[[Path], str] | None = None
    """A function that returns the split of a file; None if the set does not have its own splits."""
    canary: Callable[[Path], str] | None = None
    """A function that returns a file's canary line; every copy of the data must contain it. None if the
    files have no such line."""
    prepare: Callable[[Path], dict[str, int]] | None = None
    """A function that writes the split folders from data that another program downloads; None for other benchmarks."""
    mini: bool = True
    """True if SkillOpt contains a small set of tasks in this benchmark's format."""


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Missing data that a config names, and that `skillopt data prepare` can make."""

    name: str
    kind: str
    out: Path
    download: str
    """A description of the download; empty if no download is possible or needed."""

    @property
    def published(self) -> Path:
        """The folder of the published files."""
        return published_folder(self.name, self.out, self.kind)

    @property
    def command(self) -> str:
        kind = f" --kind {self.kind}" if self.kind else ""
        out = "" if self.out == default_folder(self.name, self.kind) else f" --out {self.out}"
        return f"skillopt data prepare {self.name}{kind}{out}"


def missing(config: EnvConfig) -> Missing | None:
    """Return the missing data of `env.split_dir`. Return None if the data exists, or if it does not belong to a
    published benchmark."""
    name = next((name for name in (config.name, config.benchmark) if name in prepared()), "")
    if not name or not config.split_dir or (Path(config.split_dir) / SPLITS[0]).is_dir():
        return None
    source, folder = source_of(name), Path(config.split_dir)
    kind = folder.name if folder.name in source.kinds else ""
    if source.kinds and not kind:
        return None
    default = default_folder(name, kind)
    out = default if folder == shipped(default) else folder
    source = _of_kind(name, source, kind)
    size = f" ({source.bytes / 1e6:,.0f} MB)" if source.bytes else ""
    here = _files(source, published_folder(name, out, kind))
    return Missing(name=name, kind=kind, out=out, download="" if here or not source.url else source.url + size)


def default_folder(name: str, kind: str = "") -> Path:
    """Return the default folder of a benchmark's splits."""
    return Path("data") / name / kind


def published_folder(name: str, out: Path, kind: str = "") -> Path:
    """Return the default folder of the published files. All kinds of a benchmark use the same folder."""
    return (default_folder(name) if out == default_folder(name, kind) else out) / "published"


def prepare(
    name: str, source_dir: Path, out: Path, progress: Progress, kind: str = "", manifest: Path | None = None
) -> dict[str, int]:
    """Write split folders from the published files in `source_dir`. If these files are missing, download them if that
    is possible. The manifest decides the split of an item. Without a manifest, the set's own splits are used; if the
    set has none, a hash of the item's id decides. Return the sizes of the splits."""
    source = source_of(name)
    if kind and not source.kinds:
        raise UserError(f"--kind: {name} has no kinds; leave --kind out")
    if source.prepare:
        if manifest:
            raise UserError(f"--manifest: {name} takes its splits from the published folders; leave --manifest out")
        return source.prepare(out)
    ids_by_split = read_manifest(manifest) if manifest else {}
    source = _of_kind(name, source, kind)
    files = _files(source, source_dir)
    if not files and source.url:
        _fetch(source, source_dir, progress, name)
        files = _files(source, source_dir)
    if not files:
        raise UserError(_by_hand(name, source, source_dir))
    items = [(item, file) for file in files for item in _items(name, source, file)]
    if manifest:
        splits = select_items(ids_by_split, [item for item, _ in items], manifest, source.how)
    else:
        splits = _splits(source, files, items)
    counts = write_splits(out, splits)
    if source.canary:
        write_atomic(out / "canary.txt", source.canary(files[0]) + "\n")
    for folder in source.folders:
        near = files[0].parent / folder
        if near.is_dir() and near.resolve() != (out / folder).resolve():
            shutil.copytree(near, out / folder, dirs_exist_ok=True)
    return counts


def prepared() -> list[str]:
    """Return the benchmarks that `data prepare` knows: the modules of this package with a `SOURCE`."""
    names = [module.name for module in pkgutil.iter_modules(skillopt_benchmarks.__path__)]
    return [name for name in names if hasattr(_module(name), "SOURCE")]


def source_of(name: str) -> DataSource:
    source: DataSource = _module(name).SOURCE
    return source


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{skillopt_benchmarks.__name__}.{name}")


def _of_kind(name: str, source: DataSource, kind: str) -> DataSource:
    if not source.kinds:
        return source
    if kind not in source.kinds:
        problem = f"{name} has no kind '{kind}'" if kind else f"is needed for {name}"
        raise UserError(f"--kind: {problem}; choose one of: {', '.join(source.kinds)}")
    files, url, how = (text.format(kind=kind) for text in (source.files, source.url, source.how))
    return replace(source, files=files, url=url, how=how)


def _items(name: str, source: DataSource, file: Path) -> Iterator[Item]:
    """Yield the items of a published file. An error names the file and the first item that cannot be read."""
    count = 0
    try:
        for item in source.read(file):
            count += 1
            yield item
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file}: is not a file of {name}: item {count + 1} cannot be read: {error!r}; replace the file by "
            f"{source.how}"
        ) from None


def _splits(source: DataSource, files: list[Path], items: Iterable[tuple[Item, Path]]) -> dict[str, list[Item]]:
    by_id: dict[str, tuple[Item, Path]] = {}
    for item, file in items:
        by_id.setdefault(item.id, (item, file))
    unique: dict[str, tuple[Item, Path]] = {}  # a task that is there twice, with two ids, could be in two splits
    for item, file in by_id.values():
        unique.setdefault(item.content(), (item, file))
    if len(unique) < len(SPLITS):
        raise UserError(f"{files[0]}: has {len(unique)} usable items; three splits need at least three items")
    if not source.split:
        return split_items([item for item, _ in unique.values()], source.sizes)
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for item, file in unique.values():
        splits[source.split(file)].append(item)
    for split, chosen in splits.items():
        if not chosen:
            raise UserError(f"{files[0].parent}: has no file of the split {split}; put these files there: {source.how}")
    return splits


def _files(source: DataSource, folder: Path) -> list[Path]:
    return sorted(folder.glob(source.files)) if folder.is_dir() else []


def _by_hand(name: str, source: DataSource, folder: Path) -> str:
    said = (
        f"{name}: no {source.files} in {folder}. Put these files there: {source.how}. Then run the same command again."
    )
    mini = f" Without a download, configs/{name}/mini.yaml runs on a small set that comes with SkillOpt."
    return said + mini if source.mini else said


def _fetch(source: DataSource, folder: Path, progress: Progress, name: str) -> None:
    """Download the file into the folder; if it is an archive, unpack it. An incomplete or wrong file is removed."""
    url = source.url
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / url.rpartition("/")[2]
    unfinished = target.with_name(f"{target.name}.part")
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=30) as reply, unfinished.open("wb") as file:  # noqa: S310 - https, ours
            total = int(reply.headers.get("Content-Length") or 0)
            while block := reply.read(BLOCK):
                digest.update(block)
                file.write(block)
                progress(file.tell(), total, f"fetching {url}")
    except (OSError, http.client.HTTPException) as error:
        unfinished.unlink(missing_ok=True)
        raise SkillOptError(f"{url} cannot be reached ({error}). {_by_hand(name, source, folder)}") from None
    if source.sha256 not in ("", digest.hexdigest()):
        unfinished.unlink()
        raise SkillOptError(
            f"{url}: the downloaded file has the SHA-256 {digest.hexdigest()}, expected {source.sha256}; the file was "
            f"removed. {_by_hand(name, source, folder)}"
        )
    unfinished.replace(target)
    if target.name.endswith((".tar.gz", ".tgz")):
        with tarfile.open(target) as archive:
            archive.extractall(folder, filter="data")
