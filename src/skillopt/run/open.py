"""Finding the run that a command means: the unfinished one of the same config, data and initial skill, or a new one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from skillopt.run.directory import RunDirectory, safe_name


def run_name(seed: int, identity: dict[str, Any]) -> str:
    """Whatever changes results changes the name; what may change between a stop and a resume does not."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
    return f"seed{seed}-{digest[:8]}"


def find_run(output_root: str, benchmark: str, name: str, *, fresh: bool) -> RunDirectory:
    """The newest run of that name, or with `fresh` an additional one."""
    folder = Path(output_root) / safe_name(benchmark)
    newest = 1
    while (folder / _numbered(name, newest + 1)).exists():
        newest += 1
    if fresh and (folder / name).exists():
        newest += 1
    return RunDirectory(folder / _numbered(name, newest))


def meant_run(path: Path) -> Path:
    """The run that a person means: a run's folder as it is, of a folder of runs its newest."""
    if RunDirectory(path).config_json.exists():
        return path
    runs = [(each.stat().st_mtime, each.parent) for each in path.glob("*/config.json")]
    return max(runs)[1] if runs else path


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
