"""Makes the table of all runs under the output folders, and is fast even for thousands of runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from threading import Lock

from pydantic import Field, JsonValue

from skillopt.config.identity import relevant
from skillopt.record.base import Interval, Record
from skillopt.record.directory import RunDirectory
from skillopt.record.run import Labels, Run, Settings
from skillopt.record.status import ending, status_of
from skillopt.statistics import seeds_interval
from skillopt.view.curves import Point, curves
from skillopt.view.diagnosis import current_summary
from skillopt.view.run_rows import RunRow, with_figures
from skillopt_webui import view
from skillopt_webui.alive import holders
from skillopt_webui.files import readable, stat
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.settings import PageSettings

POINTS = 48
"""The maximum number of points of a small curve."""
_WORK = ("config.json", "summary.json", "events.jsonl", "journal.sqlite", "journal.sqlite-wal")
_FILES = (*_WORK, "run.lock", "labels.json")
"""The files on which a run's row depends. The files in `_WORK` change only while a process works on the run."""
Files = dict[str, os.stat_result]


@dataclass(frozen=True, kw_only=True)
class RunLine(RunRow):
    """A row of the table: a run, with the names and tags that people gave to it."""

    id: str
    labels: Labels = field(default_factory=Labels)
    config: Settings = field(default_factory=dict)
    """The settings that change results; in the table, only the settings in which runs differ."""
    word: str = ""
    """The status in a word for people, or what the run waits for."""
    since: float | None = None
    """For a running run: when it would have begun if it had never been interrupted, in seconds since 1970."""
    group: str = ""
    """A key that runs share if they differ only in their seed."""


class SeedGroup(Record):
    """The means over finished runs that differ only in their seed."""

    runs: int
    """The number of finished runs."""
    initial_val: float | None
    best_val: float | None
    val_interval: Interval | None
    best_test: float | None
    test_interval: Interval | None
    usd: float | None
    seconds: float | None


class Experiment(Record):
    """The table of runs."""

    rows: list[RunLine]
    keys: list[str]
    """The settings in which the runs of the table differ."""
    groups: dict[str, SeedGroup]
    stamp: str = ""
    """A stamp that changes when anything in the table changes."""
    folders: list[str] = Field(default=[])


class RunIndex:
    """The index of all runs. It reads a run's files again only when they have changed."""

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._making = Lock()
        self._lines: dict[str, tuple[object, RunLine]] = {}
        """Rows by run, with the stamps of the files that they were made from."""
        self._last: tuple[list[RunLine], Experiment] | None = None

    def rows(self) -> list[RunLine]:
        """The rows of the table: first the running runs, then all others. In both groups, the newest is first."""
        folders = list(self._folders())
        live = holders({f"{folder}/run.lock": files["run.lock"] for _, folder, files in folders})
        lines = {}
        for name, folder, files in folders:
            busy = f"{folder}/run.lock" in live
            state = (busy, [(file, s.st_mtime_ns, s.st_size, s.st_ino) for file, s in files.items()])
            known = self._lines.get(name)
            lines[name] = known if known and known[0] == state else (state, _line(name, Path(folder), files, busy=busy))
        self._lines = lines
        return sorted((line for _, line in lines.values()), key=lambda row: (row.status != "running", -row.changed))

    def table(self) -> Experiment:
        """The table of runs, made again only when a row has changed."""
        with self._making:  # a second request waits until the first one has read the files
            rows = self.rows()
            if self._last and self._last[0] == rows:
                return self._last[1]
            made = experiment(rows)
            stamp = hashlib.sha256(made.model_dump_json().encode()).hexdigest()[:16]
            folders = [str(path) for path in self._settings.outputs]
            self._last = (rows, made.model_copy(update={"stamp": stamp, "folders": folders}))
            return self._last[1]

    def sparks(self, names: Sequence[str]) -> dict[str, list[Point]]:
        """For each run: the points of its validation score over the steps, at most `POINTS` of them."""
        return {name: line for name in names[:200] if (line := self._spark(name)) is not None}

    def _spark(self, name: str) -> list[Point] | None:
        try:
            run = find_run(self._settings, name)
        except NotThereError:
            return None
        return readable(lambda: thin(list(curves(run.history, run.summary, {}).scores))) or []

    def _folders(self) -> Iterator[tuple[str, str, Files]]:
        """Every folder `<output>/<benchmark>/<run>` in which a training has begun, with the status of its files."""
        for number, root in enumerate(self._settings.outputs):
            for benchmark in _subfolders(str(root)):
                for run in _subfolders(f"{root}/{benchmark}"):
                    folder = f"{root}/{benchmark}/{run}"
                    files = {name: status for name in _FILES if (status := stat(f"{folder}/{name}"))}
                    if "config.json" in files and "run.lock" in files:
                        yield f"{number}/{benchmark}/{run}", folder, files


def _line(name: str, folder: Path, files: Files, *, busy: bool) -> RunLine:
    run = Run(RunDirectory(folder))
    stored = readable(lambda: run.settings) or {}
    summary = readable(lambda: current_summary(run))
    status, reason = status_of(summary, run.files.events, busy=busy)
    line = RunLine(
        id=name,
        path=folder,
        benchmark=folder.parent.name,
        name=folder.name,
        status=status,
        target=str(stored.get("models.target_model", "")),
        optimizer=str(stored.get("models.optimizer_model", "")),
        changed=round(max(files[file].st_mtime for file in _WORK if file in files), 1),
        labels=readable(lambda: run.labels) or Labels(),
        config={key: value for key, value in relevant(stored).items() if key != "env.options" or value},
    )
    if summary:
        line = with_figures(line, summary)
    now = view.live(run) if busy else None
    since = round(view.began(run, summary, now), 1) if now else None
    word = "waits for a reply" if busy and view.open_letters(run) else ending(status, reason)
    return replace(line, status=status, word=word, since=since, reason=reason, benchmark=folder.parent.name)


def experiment(rows: Sequence[RunLine]) -> Experiment:
    """The rows with the settings in which they differ, and the groups of runs that differ only in their seed, with
    means and intervals."""
    keys = _differing([row.config for row in rows])
    shown: list[RunLine] = []
    groups: dict[str, list[RunLine]] = {}
    for row in rows:
        same = json.dumps([row.benchmark, {k: v for k, v in row.config.items() if k != "train.seed"}], sort_keys=True)
        group = hashlib.sha256(same.encode()).hexdigest()[:12]
        groups.setdefault(group, []).append(row)
        shown.append(replace(row, config={key: row.config.get(key) for key in keys}, group=group))
    means = {name: _means(runs) for name, runs in groups.items() if len(runs) > 1}
    return Experiment(rows=shown, keys=keys, groups=means)


def _differing(configs: Sequence[Settings]) -> list[str]:
    """The settings that some runs lack, or that do not have the same value in all runs."""
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


def _means(runs: Sequence[RunLine]) -> SeedGroup:
    """The means over the finished runs among `runs`, with intervals by Student's t that are limited to the range 0 to
    1."""
    rows = [run for run in runs if run.status == "finished"]

    def values(name: str) -> list[float]:
        return [float(value) for row in rows if (value := getattr(row, name)) is not None]

    def interval(name: str) -> Interval | None:
        ends = seeds_interval(values(name))
        return (max(0.0, ends[0]), min(1.0, ends[1])) if ends else None

    means = {name: fmean(known) if (known := values(name)) else None for name in _MEANS}
    return SeedGroup(runs=len(rows), val_interval=interval("best_val"), test_interval=interval("best_test"), **means)


_MEANS = ("initial_val", "best_val", "best_test", "usd", "seconds")


def thin(values: list[Point]) -> list[Point]:
    if len(values) <= POINTS:
        return values
    return [values[round(i * (len(values) - 1) / (POINTS - 1))] for i in range(POINTS)]


def _subfolders(folder: str) -> list[str]:
    """The names of a folder's subfolders, without links and without names that begin with a dot (such as the page's own
    folder)."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except OSError:
        return []
