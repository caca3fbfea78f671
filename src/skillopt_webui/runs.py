"""All runs under the output folders, each on a line; made for thousands."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from skillopt.report.curves import curves
from skillopt.run.directory import RunDirectory
from skillopt.run.status import status_of
from skillopt_webui.alive import holders
from skillopt_webui.files import Cache, load, stat
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.settings import Settings

POINTS = 48
"""Points of a small curve."""
_FILES = ("config.json", "summary.json", "events.jsonl", "run.lock")


class RunIndex:
    """A run's files are read again only when they have changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = Cache(60_000)

    def rows(self) -> list[dict[str, Any]]:
        """Runs at work first, then the newest."""
        found = list(self._folders())
        live = holders({f"{folder}/run.lock": files["run.lock"] for _, folder, files in found})
        rows = [self._row(name, folder, files, live.get(f"{folder}/run.lock")) for name, folder, files in found]
        return sorted(rows, key=lambda row: (row["status"] != "running", -row["changed"]))

    def sparks(self, names: Sequence[str]) -> dict[str, list[float]]:
        """The validation score over the steps, thinned."""
        out = {}
        for name in names[:200]:
            try:
                run = find_run(self._settings, name)
            except NotThereError:
                continue
            out[name] = self._cache.get("spark", run.summary, partial(_spark, run)) or []
        return out

    def _folders(self) -> Iterator[tuple[str, str, dict[str, os.stat_result]]]:
        """Every folder `<output>/<benchmark>/<run>` in which a trainer has begun, and its files that matter here."""
        for number, root in enumerate(self._settings.outputs):
            for benchmark in _subfolders(str(root)):
                for run in _subfolders(f"{root}/{benchmark}"):
                    folder = f"{root}/{benchmark}/{run}"
                    files = {name: known for name in _FILES if (known := stat(f"{folder}/{name}"))}
                    if "config.json" in files and "run.lock" in files:
                        yield f"{number}/{benchmark}/{run}", folder, files

    def _row(self, name: str, folder: str, files: dict[str, os.stat_result], pid: int | None) -> dict[str, Any]:
        parts = {}
        for file, make in (("summary.json", _summary), ("config.json", _config)):
            parts[file] = self._cache.get(file, f"{folder}/{file}", make, files.get(file)) if file in files else None
        summary = parts["summary.json"] or {}
        known = {"status": summary["status"], "stop_reason": summary["reason"]} if summary else None
        status, reason = status_of(known, Path(folder) / "events.jsonl", busy=bool(pid))
        _, benchmark, run = name.split("/")
        changed = round(max(known.st_mtime for file, known in files.items() if file != "run.lock"), 1)
        about = {"id": name, "benchmark": benchmark, "run": run, "changed": changed}
        return {**about, **(parts["config.json"] or {}), **summary, "status": status, "reason": reason}


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


def _spark(run: RunDirectory, summary: Path) -> list[float]:
    """The current skill's validation score over the run, thinned."""
    history = load(run.history) if run.history.exists() else []
    return thin([score for _, score in curves(history, load(summary), {}).scores])


def thin(values: list[float]) -> list[float]:
    if len(values) <= POINTS:
        return values
    return [values[round(i * (len(values) - 1) / (POINTS - 1))] for i in range(POINTS)]


def _subfolders(folder: str) -> list[str]:
    """Their names. Those that begin with a dot are the page's own; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except OSError:
        return []
