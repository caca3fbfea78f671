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
from typing import ClassVar

from pydantic import Field, JsonValue

from skillopt.config.identity import relevant
from skillopt.record.base import Interval, Record
from skillopt.record.directory import RunDirectory
from skillopt.record.results import Sweep
from skillopt.record.run import Run, Settings, read_record
from skillopt.record.status import status_of
from skillopt.statistics import seeds_interval
from skillopt.view.curves import curves
from skillopt.view.run_rows import RunRow, with_figures
from skillopt_webui.alive import holders
from skillopt_webui.files import Cache, read_summary, stat
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.settings import PageSettings

POINTS = 48
"""Points of a small curve."""
_FILES = ("config.json", "summary.json", "events.jsonl", "run.lock", "labels.json")
_NOT_WORK = ("run.lock", "labels.json")
"""Files that change while no process works on the run."""


class RunSettings(Record):
    """What the table shows of a run's config."""

    env: str = ""
    target: str = ""
    optimizer: str = ""
    config: Settings = Field(default={})
    """The settings that change results."""


class _Figures(Record):
    """What the summary says; left out if there is none."""

    optional: ClassVar = frozenset(
        [
            "seed",
            "initial",
            "best",
            "val_interval",
            "test",
            "test_interval",
            "tokens",
            "calls",
            "seconds",
            "steps",
            "planned",
        ]
    )

    seed: int | None = None
    initial: float | None = None
    best: float | None = None
    val_interval: Interval | None = None
    test: float | None = None
    test_interval: Interval | None = None
    tokens: int | None = None
    usd: float | None = None
    calls: int | None = None
    seconds: float | None = None
    steps: int | None = None
    planned: int | None = None

    @classmethod
    def of(cls, row: RunRow) -> _Figures:
        return cls(
            seed=row.seed,
            initial=row.initial_val,
            best=row.best_val,
            val_interval=row.val_interval,
            test=row.best_test,
            test_interval=row.test_interval,
            tokens=row.tokens,
            usd=row.usd,
            calls=row.calls,
            seconds=row.seconds,
            steps=row.steps,
            planned=row.planned_steps,
        )


class RunLine(_Figures, RunSettings):
    """A run in the table: the figures of `RunRow` under the page's names, and what a person calls the run."""

    id: str
    benchmark: str
    run: str
    changed: float
    name: str = ""
    tags: list[str] = Field(default=[])
    note: str = ""
    status: str
    reason: str


class ExperimentRow(RunLine):
    """`config` has the settings in which runs differ."""

    group: str
    sweep: str


class SeedGroup(Record):
    """Means over runs that differ in nothing but their seed."""

    runs: int
    initial: float | None
    best: float | None
    best_interval: Interval | None
    test: float | None
    test_interval: Interval | None
    usd: float | None
    seconds: float | None


class Experiment(Record):
    """The table of runs."""

    rows: list[ExperimentRow]
    keys: list[str]
    """Settings in which the runs differ."""
    groups: dict[str, SeedGroup]
    stamp: str = ""
    """Another if anything in the table is another."""
    folders: list[str] = Field(default=[])


class RunIndex:
    """A run's files are read again only when they have changed."""

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._cache = Cache(60_000)
        self._making = Lock()
        self._last: tuple[list[RunLine], dict[str, str], Experiment] | None = None

    def rows(self) -> list[RunLine]:
        """Runs at work first, then the newest."""
        folders = list(self._folders())
        live = holders({f"{folder}/run.lock": files["run.lock"] for _, folder, files in folders})
        rows = [self._row(name, folder, files, live.get(f"{folder}/run.lock")) for name, folder, files in folders]
        return sorted(rows, key=lambda row: (row.status != "running", -row.changed))

    def table(self) -> Experiment:
        """Made again only when a row has changed."""
        with self._making:  # a second request waits for what the first one reads
            rows, sweeps = self.rows(), self._sweeps()
            if self._last and self._last[:2] == (rows, sweeps):
                return self._last[2]
            made = experiment(rows, sweeps)
            stamp = hashlib.sha256(made.model_dump_json().encode()).hexdigest()[:16]
            folders = [str(path) for path in self._settings.outputs]
            made = made.model_copy(update={"stamp": stamp, "folders": folders})
            self._last = (rows, sweeps, made)
            return made

    def _sweeps(self) -> dict[str, str]:
        """The sweep that a run belongs to, by the run's folder name."""
        sweep_of = {}
        for root in self._settings.outputs:
            for path in root.glob("sweeps/*/*/sweep.json"):
                for name in self._cache.get("sweep", path, partial(_sweep_runs, path)) or []:
                    sweep_of[name] = f"{path.parent.parent.name}/{path.parent.name}"
        return sweep_of

    def sparks(self, names: Sequence[str]) -> dict[str, list[float]]:
        """The validation score over the steps, thinned."""
        return {name: line for name in names[:200] if (line := self._spark(name)) is not None}

    def _spark(self, name: str) -> list[float] | None:
        try:
            run = find_run(self._settings, name)
        except NotThereError:
            return None
        return self._cache.get("spark", run.files.summary, lambda: _scores(run)) or []

    def _folders(self) -> Iterator[tuple[str, str, dict[str, os.stat_result]]]:
        """Every folder `<output>/<benchmark>/<run>` in which a trainer has begun, and its files that matter here."""
        for number, root in enumerate(self._settings.outputs):
            for benchmark in _subfolders(str(root)):
                for run in _subfolders(f"{root}/{benchmark}"):
                    folder = f"{root}/{benchmark}/{run}"
                    files = {name: status for name in _FILES if (status := stat(f"{folder}/{name}"))}
                    if "config.json" in files and "run.lock" in files:
                        yield f"{number}/{benchmark}/{run}", folder, files

    def _row(self, name: str, folder: str, files: dict[str, os.stat_result], pid: int | None) -> RunLine:
        def run() -> Run:
            return Run(RunDirectory(Path(folder)))

        get = self._cache.get
        row = get("row", f"{folder}/summary.json", lambda: _figures(run()), files.get("summary.json"))
        if row and row.status != "finished":
            summary = read_summary(run(), self._cache)
            row = with_figures(row, summary) if summary else row
        settings = get("config", f"{folder}/config.json", lambda: _settings(run()), files["config.json"])
        labels = get("labels", f"{folder}/labels.json", lambda: run().labels, files.get("labels.json"))
        ending = {"status": row.status, "stop_reason": row.reason} if row else None
        status, reason = status_of(ending, Path(f"{folder}/events.jsonl"), busy=bool(pid))
        _, benchmark, run_name = name.split("/")
        changed = round(max(status.st_mtime for file, status in files.items() if file not in _NOT_WORK), 1)
        return RunLine(
            id=name,
            benchmark=benchmark,
            run=run_name,
            changed=changed,
            status=status,
            reason=reason,
            **dict(labels or ()),
            **dict(settings or ()),
            **dict(_Figures.of(row) if row else ()),
        )


def _figures(run: Run) -> RunRow | None:
    row = RunRow(path=run.root, benchmark="", name=run.root.name, status="")
    return with_figures(row, run.summary) if run.summary else None


def _settings(run: Run) -> RunSettings:
    stored = run.settings
    return RunSettings(
        env=str(stored.get("env.name", "")),
        target=str(stored.get("models.target_model", "")),
        optimizer=str(stored.get("models.optimizer_model", "")),
        config={key: value for key, value in relevant(stored).items() if key != "env.options" or value},
    )


def _sweep_runs(path: Path) -> list[str]:
    return [Path(row.run).name for row in read_record(Sweep, path).rows]


def experiment(rows: Sequence[RunLine], sweeps: Mapping[str, str]) -> Experiment:
    """The rows with the settings in which they differ, and groups of seeds with their means and intervals."""
    keys = _differing([row.config for row in rows])
    shown: list[ExperimentRow] = []
    groups: dict[str, list[RunLine]] = {}
    for row in rows:
        same = json.dumps([row.benchmark, {k: v for k, v in row.config.items() if k != "train.seed"}], sort_keys=True)
        group = hashlib.sha256(same.encode()).hexdigest()[:12]
        groups.setdefault(group, []).append(row)
        config = {key: row.config.get(key) for key in keys}
        shown.append(ExperimentRow(**{**dict(row), "config": config}, group=group, sweep=sweeps.get(row.run, "")))
    means = {name: _means(runs) for name, runs in groups.items() if len(runs) > 1}
    return Experiment(rows=shown, keys=keys, groups=means)


def _differing(configs: Sequence[Settings]) -> list[str]:
    """Settings that some runs do not have, or have with another value."""
    first: Settings = {}
    holding: Counter[str] = Counter()
    differ: set[str] = set()
    for config in configs:
        holding.update(config.keys())
        for key, value in config.items():
            if key in differ:
                continue
            other = first.setdefault(key, value)
            plain = type(other) is type(value) and (not value or not isinstance(value, dict | list))
            if not (plain and other == value) and _text(other) != _text(value):  # 1 and True are equal, too
                differ.add(key)
    return sorted(key for key, count in holding.items() if key in differ or count < len(configs))


def _text(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True)


def _means(rows: Sequence[RunLine]) -> SeedGroup:
    """Intervals by Student's t, within what a score can be."""

    def values(name: str) -> list[float]:
        return [float(value) for row in rows if (value := row.get(name)) is not None]

    def interval(name: str) -> Interval | None:
        ends = seeds_interval(values(name))
        return (max(0.0, ends[0]), min(1.0, ends[1])) if ends else None

    means = {name: fmean(known) if (known := values(name)) else None for name in _MEANS}
    return SeedGroup(runs=len(rows), best_interval=interval("best"), test_interval=interval("test"), **means)


_MEANS = ("initial", "best", "test", "usd", "seconds")


def _scores(run: Run) -> list[float]:
    return thin([score for _, score in curves(run.history, run.summary, {}).scores])


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
