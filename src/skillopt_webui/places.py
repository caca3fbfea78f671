"""Finds the files that the browser names, but only files under the page's folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from skillopt.config import Config
from skillopt.config.shipped import is_file, is_there
from skillopt.errors import Damaged, UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt_webui.settings import PageSettings

_NAME = re.compile(r"[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,254}\Z")
"""Matches the name of one folder. A name that begins with a dot does not match: the page does not show such folders."""
_KEY = re.compile(r"^([^\s#:{}\[\]-][^\s:]*):(?:\s|$)", re.MULTILINE)
_TELLING = {"_base_", "train", "models", "env"}
_DEEPEST = 4
"""The maximum number of levels of folders that are searched for configs."""
_LARGEST = 200_000
_OF_A_RUN = {"journal.sqlite", "runtime_state.json", "patch_log.jsonl", "events.jsonl", "run.lock"}
"""A folder with one of these files is a run. Its config is not trusted: it may come from a different machine."""
_NOT_OURS = {"node_modules", "__pycache__", "site-packages", "venv"}


def plain_name(name: str) -> bool:
    """True if `name` is the name of one folder (not a path) and does not begin with a dot."""
    return bool(_NAME.match(name))


RESULTS = {"evaluations": "eval_summary.json", "comparisons": "comparison.json", "checks": "check.json"}
"""The name of the result file for each kind of measurement. The key is the folder that contains the measurements
of this kind."""


class NotThereError(UserError):
    """A file or run does not exist, or is outside of the folders. The answer does not say which of the two is true."""


def find_run(settings: PageSettings, run_id: str) -> Run:
    """The run with an id such as `0/sim/2026-11-17_22-40-05_seed42-1a2b3c4d`: the number of the output folder, the
    benchmark, the run. A run that contains links, pipes or devices is not opened."""
    parts = run_id.split("/")
    if len(parts) != 3 or not re.fullmatch(r"\d{1,4}", parts[0]) or int(parts[0]) >= len(settings.outputs):
        raise NotThereError(f"no run '{run_id}'")
    root = settings.outputs[int(parts[0])]
    if not all(_NAME.match(part) for part in parts[1:]):
        raise NotThereError(f"no run '{run_id}'")
    folder = root / parts[1] / parts[2]
    if not is_there(folder) or not folder.is_dir() or not inside(folder, [root]):
        raise NotThereError(f"no run '{run_id}'")
    run = RunDirectory(folder)
    try:
        run.check_files()
    except Damaged as error:
        raise NotThereError(str(error)) from error
    return Run(run)


def run_id(settings: PageSettings, folder: Path) -> str | None:
    """The id of a run's folder; None if it is outside of the output folders."""
    return _id(settings, folder, 2)


def measured_id(settings: PageSettings, folder: Path) -> str | None:
    """The id of a measurement's folder; None if it is outside of the output folders."""
    return _id(settings, folder, 3)


def _id(settings: PageSettings, folder: Path, depth: int) -> str | None:
    folder = folder.resolve()
    for number, root in enumerate(settings.outputs):
        if folder.is_relative_to(root) and len(folder.relative_to(root).parts) == depth:
            return f"{number}/{folder.relative_to(root)}"
    return None


def inside(path: Path, folders: Sequence[Path]) -> bool:
    """True if the path is in one of the folders after all links are followed. A path that no file can have is
    outside."""
    real = resolved(path)
    return real is not None and any(real.is_relative_to(folder.resolve()) for folder in folders)


def resolved(path: Path) -> Path | None:
    """The real path; None for an impossible one (a zero byte, links in a circle, an unknown home folder)."""
    try:
        return path.expanduser().resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def readable(settings: PageSettings) -> tuple[Path, ...]:
    return (*settings.outputs, *settings.configs, *settings.data)


def fits(path: Path, folders: Sequence[Path]) -> bool:
    """True if the path is under one of the folders and not hidden. (Hidden files may contain API keys.)"""
    real = resolved(path)
    folder = next((folder for folder in folders if real and real.is_relative_to(folder)), None)
    if real is None or folder is None:
        return False
    return not any(part.startswith(".") for part in real.relative_to(folder).parts)


def find_file(settings: PageSettings, name: str, *, what: str, folders: Sequence[Path] | None = None) -> Path:
    """A file by its path relative to the workspace. Raises NotThereError if the file is hidden, missing or outside of
    the folders."""
    path = settings.workspace / name
    if not is_file(path) or not fits(path, folders or readable(settings)):
        raise NotThereError(f"{what}: no file '{name}' under {settings.reach}")
    return path


def shown(settings: PageSettings, path: Path) -> str:
    """A path for people: relative to the workspace if the path is below it, else absolute."""
    path = path.resolve()
    return str(path.relative_to(settings.workspace)) if path.is_relative_to(settings.workspace) else str(path)


def find_config(settings: PageSettings, name: str) -> Path:
    """A config by its path: one of `listed_configs`, or a file of the config folders."""
    folders = [*settings.configs, *([settings.searched] if settings.searched else [])]
    path = find_file(settings, name, what="config", folders=folders)
    if not inside(path, settings.configs) and path.resolve() not in (p.resolve() for p in listed_configs(settings)):
        raise NotThereError(f"config: no file '{name}' under the page's folders")
    return path


def config_files(settings: PageSettings) -> Iterator[Path]:
    """The YAML files of the config folders, without files of runs. The user trusts these files: they may name code,
    keys and servers."""
    for folder in settings.configs:
        if folder.is_dir():
            found = (p for p in folder.rglob("*.y*ml") if p.suffix in {".yaml", ".yml"} and fits(p, [folder]))
            yield from sorted(p for p in found if not inside(p, settings.outputs) and not _of_a_run(p, folder))


def _of_a_run(path: Path, root: Path) -> bool:
    """True if a file under `root` is in a run: either `root` is a run, or the run was copied into a folder below
    `root`."""
    above = [folder for folder in path.parents if folder.is_relative_to(root)]
    return any((folder / name).exists() for folder in above for name in _OF_A_RUN)


def listed_configs(settings: PageSettings) -> Iterator[Path]:
    """The files of `config_files`, then the other configs below `settings.searched`, which may come from other
    people."""
    yield from config_files(settings)
    if settings.searched:
        yield from _configs_below(settings.searched, {*settings.outputs, *settings.configs})


def _configs_below(root: Path, without: set[Path]) -> Iterator[Path]:
    """The configs below a folder, except those in hidden folders, links, runs, and packages of other programs."""
    for place, folders, files in os.walk(root):
        here = Path(place)
        if _OF_A_RUN.intersection(files):
            folders.clear()
            continue
        deep = len(here.relative_to(root).parts) >= _DEEPEST
        folders[:] = [
            name
            for name in sorted(folders)
            if not deep and not name.startswith(".") and name not in _NOT_OURS and here / name not in without
        ]
        for name in sorted(files):
            if Path(name).suffix in {".yaml", ".yml"} and not name.startswith(".") and _is_config(here / name):
                yield here / name


def _is_config(path: Path) -> bool:
    """True if a YAML file has SkillOpt's sections and no other keys. The YAML files of other programs have other
    keys."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
        return False
    try:
        keys = set(_KEY.findall(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        return False
    return bool(keys & _TELLING) and keys <= {*Config.model_fields, "_base_"}
