"""All runs under the output folders, each on a line; made for thousands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from skillopt.run.directory import RunDirectory
from skillopt_webui.alive import holders
from skillopt_webui.files import Cache, load
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.settings import Settings

POINTS = 48
"""Points of a small curve."""


class RunIndex:
    """A run's files are read again only when they have changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = Cache(60_000)

    def rows(self) -> list[dict[str, Any]]:
        """Live runs first, then the newest."""
        found = list(self._folders())
        live = holders(folder for _, folder in found)
        rows = [self._row(name, folder, live.get(folder)) for name, folder in found]
        return sorted(rows, key=lambda row: (row["status"] != "live", -row["changed"]))

    def sparks(self, names: Sequence[str]) -> dict[str, list[float]]:
        """The validation score over the steps, thinned."""
        out = {}
        for name in names[:200]:
            try:
                run = find_run(self._settings, name)
            except NotThereError:
                continue
            initial = (self._cache.get("summary", run.summary, _summary) or {}).get("initial")
            curve = self._cache.get("spark", run.history, lambda path: thin(scores(load(path))))
            out[name] = ([initial] if initial is not None else []) + (curve or [])
        return out

    def _folders(self) -> Iterator[tuple[str, Path]]:
        """Every folder `<output>/<benchmark>/<run>` in which a trainer has begun."""
        for number, root in enumerate(self._settings.outputs):
            for benchmark in _subfolders(root):
                for folder in _subfolders(benchmark):
                    if (folder / "config.json").exists() and (folder / "run.lock").exists():
                        yield f"{number}/{benchmark.name}/{folder.name}", folder

    def _row(self, name: str, folder: Path, pid: int | None) -> dict[str, Any]:
        run = RunDirectory(folder)
        summary = self._cache.get("summary", run.summary, _summary) or {"status": "began"}
        config = self._cache.get("config", run.config_json, _config) or {}
        changed = max(_mtime(run.summary), _mtime(run.events), _mtime(run.config_json))
        row = {"id": name, "benchmark": name.split("/")[1], "run": folder.name, "changed": changed, **config, **summary}
        row["status"] = (
            "live"
            if pid
            else {"running": "broken off", "began": "broken off"}.get(summary["status"], summary["status"])
        )
        return row


def _summary(path: Path) -> dict[str, Any]:
    data = load(path)
    costs = list(data["cost_usd"].values())
    return {
        "status": data["status"],
        "reason": data.get("stop_reason", ""),
        "seed": data["seed"],
        "initial": data["initial"]["val"],
        "best": data["best"]["val"],
        "test": data["best"].get("test"),
        "tokens": data["best"].get("tokens"),
        "usd": None if None in costs else sum(costs),
        "calls": data["calls"]["target"] + data["calls"]["optimizer"],
        "seconds": data["seconds"],
        "steps": data["steps"]["run"],
        "planned": data.get("plan", {}).get("steps", {}).get("planned"),
    }


def _config(path: Path) -> dict[str, Any]:
    data = load(path)
    return {
        "env": data.get("env.name", ""),
        "target": data.get("models.target_model", ""),
        "optimizer": data.get("models.optimizer_model", ""),
    }


def scores(history: Iterable[dict[str, Any]]) -> list[float]:
    """The current skill's validation score after each step and epoch end."""
    return [float(score_after(record)) for record in history]


def score_after(record: dict[str, Any]) -> float:
    """Guidance that was accepted at an epoch's end counts with its last step."""
    slow = record.get("epoch_end", {}).get("slow_update", {})
    if slow.get("decision") == "accept":
        return float(slow["evidence"]["after"])
    evidence = record["evidence"]
    return float(evidence["after"] if record["verdict"] == "accept" else evidence["before"])


def thin(values: list[float]) -> list[float]:
    if len(values) <= POINTS:
        return values
    return [values[round(i * (len(values) - 1) / (POINTS - 1))] for i in range(POINTS)]


def _subfolders(folder: Path) -> list[Path]:
    """Names that begin with a dot are the page's own; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
