"""All runs under the output folders, each on a line; made for thousands."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from threading import Lock
from typing import Any

from skillopt.config.identity import relevant
from skillopt.report.curves import curves
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.status import status_of
from skillopt.statistics import seeds_interval
from skillopt_webui.alive import holders
from skillopt_webui.files import Cache, stat
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.settings import Settings

POINTS = 48
"""Points of a small curve."""
_FILES = ("config.json", "summary.json", "events.jsonl", "run.lock", "labels.json")


_NOT_WORK = ("run.lock", "labels.json")
"""Files that change while no process works on the run."""


class RunIndex:
    """A run's files are read again only when they have changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = Cache(60_000)
        self._making = Lock()
        self._last: tuple[list[dict[str, Any]], dict[str, str], dict[str, Any]] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Runs at work first, then the newest."""
        found = list(self._folders())
        live = holders({f"{folder}/run.lock": files["run.lock"] for _, folder, files in found})
        rows = [self._row(name, folder, files, live.get(f"{folder}/run.lock")) for name, folder, files in found]
        return sorted(rows, key=lambda row: (row["status"] != "running", -row["changed"]))

    def table(self) -> dict[str, Any]:
        """The experiment table, with a `stamp` of what is in it; made again only when a row has changed."""
        with self._making:  # a second request waits for what the first one reads
            rows, sweeps = self.rows(), self._sweeps()
            if self._last and self._last[:2] == (rows, sweeps):
                return self._last[2]
            made = experiment(rows, sweeps)
            made["stamp"] = hashlib.sha256(json.dumps(made, default=str).encode()).hexdigest()[:16]
            self._last = (rows, sweeps, made)
            return made

    def _sweeps(self) -> dict[str, str]:
        """The sweep that a run belongs to, by the run's folder name."""
        found = {}
        for root in self._settings.outputs:
            for path in root.glob("sweeps/*/*/sweep.json"):
                for name in self._cache.get("sweep", path, _sweep_runs) or []:
                    found[name] = f"{path.parent.parent.name}/{path.parent.name}"
        return found

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
        for file, make in (("summary.json", _summary), ("config.json", _config), ("labels.json", labels_of)):
            parts[file] = self._cache.get(file, f"{folder}/{file}", make, files.get(file)) if file in files else None
        summary = parts["summary.json"] or {}
        known = {"status": summary["status"], "stop_reason": summary["reason"]} if summary else None
        status, reason = status_of(known, Path(f"{folder}/events.jsonl"), busy=bool(pid))
        _, benchmark, run = name.split("/")
        changed = round(max(known.st_mtime for file, known in files.items() if file not in _NOT_WORK), 1)
        about = {"id": name, "benchmark": benchmark, "run": run, "changed": changed}
        about |= parts["labels.json"] or {}
        return {**about, **(parts["config.json"] or {}), **summary, "status": status, "reason": reason}


def _summary(path: Path) -> dict[str, Any]:
    data = read_json(path)
    costs = list(data["cost_usd"].values())
    return {
        "status": data["status"],
        "reason": data.get("stop_reason", ""),
        "seed": data["seed"],
        "initial": data["initial"]["val"],
        "best": data["best"]["val"],
        "val_interval": data["best"].get("val_interval"),
        "test": data["best"].get("test"),
        "test_interval": data["best"].get("test_interval"),
        "tokens": data["best"].get("tokens"),
        "usd": None if None in costs else sum(costs),
        "calls": data["calls"]["target"] + data["calls"]["optimizer"],
        "seconds": data["seconds"],
        "steps": data["steps"]["run"],
        "planned": data.get("plan", {}).get("steps", {}).get("planned"),
    }


def _config(path: Path) -> dict[str, Any]:
    data = read_json(path)
    return {
        "env": data.get("env.name", ""),
        "target": data.get("models.target_model", ""),
        "optimizer": data.get("models.optimizer_model", ""),
        "config": {key: value for key, value in relevant(data).items() if key != "env.options" or value},
    }


def _sweep_runs(path: Path) -> list[str]:
    return [Path(row["run"]).name for row in read_json(path)["rows"]]


def labels_of(path: Path) -> dict[str, Any]:
    """What a person calls a run: a name, tags and a note."""
    data = read_json(path)
    tags = [str(tag) for tag in data.get("tags", [])]
    return {"name": str(data.get("name", "")), "tags": tags, "note": str(data.get("note", ""))}


def experiment(rows: Sequence[dict[str, Any]], sweeps: Mapping[str, str]) -> dict[str, Any]:
    """The rows with the settings in which they differ, and groups of seeds with their means and intervals."""
    keys = _differing([row.get("config") or {} for row in rows])
    shown: list[dict[str, Any]] = []
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        config = dict(row.get("config") or {})
        same = json.dumps([row["benchmark"], {k: v for k, v in config.items() if k != "train.seed"}], sort_keys=True)
        group = hashlib.sha256(same.encode()).hexdigest()[:12]
        groups.setdefault(group, []).append(row)
        own = {key: config.get(key) for key in keys}
        shown.append({**row, "config": own, "group": group, "sweep": sweeps.get(row["run"], "")})
    return {"rows": shown, "keys": keys, "groups": {name: _means(own) for name, own in groups.items() if len(own) > 1}}


def _differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that some runs do not have, or have with another value."""
    first: dict[str, Any] = {}
    holding: Counter[str] = Counter()
    differ: set[str] = set()
    for config in configs:
        holding.update(config.keys())
        for key, value in config.items():
            if key in differ:
                continue
            known = first.setdefault(key, value)
            plain = type(known) is type(value) and (not value or not isinstance(value, dict | list))
            if not (plain and known == value) and _text(known) != _text(value):  # 1 and True are equal, too
                differ.add(key)
    return sorted(key for key, count in holding.items() if key in differ or count < len(configs))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the runs of a group; intervals by Student's t, within what a score can be."""
    found: dict[str, Any] = {"runs": len(rows)}
    for name in ("initial", "best", "test", "usd", "seconds"):
        values = [float(row[name]) for row in rows if row.get(name) is not None]
        found[name] = fmean(values) if values else None
        ends = seeds_interval(values) if name in {"best", "test"} else None
        found[f"{name}_interval"] = [max(0.0, ends[0]), min(1.0, ends[1])] if ends else None
    return found


def _spark(run: RunDirectory, summary: Path) -> list[float]:
    """The current skill's validation score over the run, thinned."""
    history = read_json(run.history) if run.history.exists() else []
    return thin([score for _, score in curves(history, read_json(summary), {}).scores])


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
