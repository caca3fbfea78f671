"""Names from the browser to files: only what lies under the configured folders, whatever the name says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from skillopt.errors import UserError
from skillopt.run.directory import RunDirectory
from skillopt.shipped import is_file, is_there
from skillopt_webui.settings import Settings

_NAME = re.compile(r"[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,254}\Z")
"""One folder's name; what begins with a dot is not for the page."""


def plain_name(name: str) -> bool:
    """Can it be one folder's name that the page may open?"""
    return bool(_NAME.match(name))


RESULTS = {"evaluations": "eval_summary.json", "comparisons": "comparison.json", "checks": "check.json"}
"""Measurements outside of a training: their folders, and the file that each ends with."""


class NotThereError(UserError):
    """What was asked for does not exist, or lies outside of the folders: the answer is the same."""


def find_run(settings: Settings, run_id: str) -> RunDirectory:
    """`0/sim/seed42-1a2b3c4d`: the number of the output folder, the benchmark, the run."""
    parts = run_id.split("/")
    if len(parts) != 3 or not re.fullmatch(r"\d{1,4}", parts[0]) or int(parts[0]) >= len(settings.outputs):
        raise NotThereError(f"no run '{run_id}'")
    root = settings.outputs[int(parts[0])]
    if not all(_NAME.match(part) for part in parts[1:]):
        raise NotThereError(f"no run '{run_id}'")
    folder = root / parts[1] / parts[2]
    if not is_there(folder) or not folder.is_dir() or not inside(folder, [root]):
        raise NotThereError(f"no run '{run_id}'")
    return RunDirectory(folder)


def run_id(settings: Settings, folder: Path) -> str | None:
    """The name of a run's folder; None where it lies elsewhere."""
    folder = folder.resolve()
    for number, root in enumerate(settings.outputs):
        if folder.is_relative_to(root) and len(folder.relative_to(root).parts) == 2:
            return f"{number}/{folder.relative_to(root)}"
    return None


def measured_id(settings: Settings, path: Path) -> str | None:
    """The name of a result file's folder; None where it lies elsewhere."""
    path = path.resolve()
    for count, root in enumerate(settings.outputs):
        if path.is_relative_to(root):
            parts = path.relative_to(root).parts
            if len(parts) == 4 and RESULTS.get(parts[0]) == parts[3]:
                return "/".join((str(count), *parts[:3]))
    return None


def inside(path: Path, folders: Sequence[Path]) -> bool:
    """Links are followed first: one that leads out of the folders is outside. So is a name that no file can have."""
    real = resolved(path)
    return real is not None and any(real.is_relative_to(folder.resolve()) for folder in folders)


def resolved(path: Path) -> Path | None:
    """Where it really lies; None for what can lie nowhere (a zero byte, links that go round, a home that is none)."""
    try:
        return path.expanduser().resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def readable(settings: Settings) -> tuple[Path, ...]:
    return (*settings.outputs, *settings.configs, *settings.data)


def find_file(settings: Settings, name: str, *, what: str, folders: Sequence[Path] | None = None) -> Path:
    """A file by its path, relative to the workspace."""
    path = settings.workspace / name
    if not is_file(path) or not inside(path, folders or readable(settings)):
        raise NotThereError(f"{what}: no file '{name}' under the page's folders")
    return path


def shown(settings: Settings, path: Path) -> str:
    """A path as people write it: relative to the workspace where it lies below."""
    path = path.resolve()
    return str(path.relative_to(settings.workspace)) if path.is_relative_to(settings.workspace) else str(path)


def config_files(settings: Settings) -> Iterator[Path]:
    for folder in settings.configs:
        if folder.is_dir():
            yield from sorted(
                p for p in folder.rglob("*.y*ml") if p.suffix in {".yaml", ".yml"} and inside(p, [folder])
            )
