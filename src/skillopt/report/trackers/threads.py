"""Between a run and its trackers: one thread a tracker, so that one that fails or hangs costs the run nothing."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from skillopt import plugins
from skillopt.config import Config, TrackersConfig
from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.report.trackers.base import About, Tracker, final_figures, step_scalars
from skillopt.run.directory import RunDirectory, safe_name
from skillopt.run.events import Event, Listener
from skillopt.run.files import read_json, write_json

PATIENCE = 30.0
"""Seconds that a tracker has at the end of a run to send what it still holds."""

_OURS = {
    "tensorboard": ("TensorBoard", "tensorboard"),
    "mlflow": ("MLflow", "mlflow"),
    "wandb": ("WandB", "wandb"),
    "otel": ("OpenTelemetry", "opentelemetry.sdk"),
}
"""The class in `to_<name>.py`, and what must be there to import."""


def check_trackers(settings: TrackersConfig) -> None:
    """Refuse, before anything is paid, a tracker whose package is not installed."""
    for name in settings.use:
        if name not in _OURS:  # another package's, which is installed, or its name would not have been accepted
            continue
        if not _importable(_OURS[name][1]):
            raise UserError(f"trackers.use: '{name}' needs a package that is not here: pip install 'skillopt[{name}]'")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it is not here either
        return False


@asynccontextmanager
async def tracking(
    config: Config, others: tuple[Listener, ...], passed_in: Sequence[Tracker] = ()
) -> AsyncIterator[Tracking]:
    """A listener that sends a run's events to its trackers; `others` are informed of a tracker that failed."""
    check_trackers(config.trackers)
    watch = Tracking(config, others, passed_in)
    try:
        yield watch
    finally:
        await asyncio.to_thread(watch.close)


class Tracking:
    """Listens to a run. Without trackers it does nothing."""

    def __init__(self, config: Config, others: tuple[Listener, ...] = (), passed_in: Sequence[Tracker] = ()) -> None:
        self._others = others
        opened = {name: partial(open_tracker, name) for name in config.trackers.use}
        opened |= {safe_name(plugins.named(own)): partial(plugins.instance, own) for own in passed_in}
        self._workers = [_Worker(name, config, make) for name, make in opened.items()]
        self._told: set[str] = set()

    def __call__(self, event: Event) -> None:
        for worker in self._workers:
            worker.tell(event)
        self._complain()

    def finish(self, run: RunDirectory) -> None:
        """The report is written: hand it over."""
        for worker in self._workers:
            worker.finish(run)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            worker.join(PATIENCE)
        self._complain()

    def _complain(self) -> None:
        for worker in self._workers:
            if worker.trouble and worker.name not in self._told:
                self._told.add(worker.name)
                event = Event(kind="tracker_failed", data={"name": worker.name, "error": worker.trouble})
                for listener in self._others:
                    listener(event)


_Job = Callable[[], None]


class _Worker:
    """One tracker on its thread: events go into a queue, and nothing comes back but what went wrong."""

    def __init__(self, name: str, config: Config, make: Callable[[], Tracker]) -> None:
        self.name = name
        self._make = make
        self.trouble = ""
        self._config = config
        self._tracker: Tracker | None = None
        self._run: RunDirectory | None = None
        self._began = 0.0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def tell(self, event: Event) -> None:
        if event.kind in {"run_started", "rollout_started", "step_finished", "epoch_finished"}:
            self._jobs.put(lambda: self._tell(event))

    def finish(self, run: RunDirectory) -> None:
        self._jobs.put(lambda: self._finish(run))

    def close(self) -> None:
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        if self._thread.is_alive() and not self.trouble:
            self.trouble = f"did not answer within {seconds:g} s"

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self.trouble:
                continue
            try:
                job()
            except Exception as error:
                self.trouble = redact(f"{type(error).__name__}: {error}")
        with suppress(Exception):
            if self._tracker is not None:
                self._tracker.close()

    def _tell(self, event: Event) -> None:
        if event.kind == "run_started":
            self._begin(Path(event.data["path"]))
        elif event.kind == "rollout_started":
            self._began = event.time
        elif event.kind == "step_finished":
            self._step(event.data["record"], self._began or event.time, event.time)
        else:
            self._guidance(event.data["outcome"], event.step)

    def _begin(self, path: Path) -> None:
        """What an earlier session sent is not sent again; what it missed is."""
        self._run = RunDirectory(path)
        done = self._mark()
        self._tracker = self._make()
        about = About(
            name=f"{path.parent.name}/{path.name}",
            folder=self._run.trackers / self.name,
            config=self._config.flat(),
            settings=self._config.trackers,
            earlier_id=str(done.get("id", "")),
        )
        about.folder.mkdir(parents=True, exist_ok=True)
        self._note(id=self._tracker.begin(about))
        for record in read_json(self._run.history) if self._run.history.exists() else []:
            self._step(record, 0.0, 0.0)
            self._guidance(record.get("epoch_end", {}), record["step"])

    def _step(self, record: Mapping[str, Any], began: float, ended: float) -> None:
        if record["step"] <= self._mark().get("step", 0):
            return
        assert self._tracker
        self._initial()
        self._tracker.step(record["step"], step_scalars(record), began, ended)
        if record["verdict"] == "accept":
            self._skill(record["version"], record["step"])
        self._note(step=record["step"])

    def _initial(self) -> None:
        """The initial skill; when a run starts it is not written yet."""
        if "version" not in self._mark():
            self._skill(0, 0)

    def _guidance(self, outcome: Mapping[str, Any], step: int) -> None:
        guided = outcome.get("slow_update", {})
        if guided.get("decision") == "accept" and guided["version"] > self._mark().get("version", -1):
            self._skill(guided["version"], step)

    def _skill(self, version: int, step: int) -> None:
        assert self._tracker
        assert self._run
        self._tracker.skill(version, step, self._run.read_skill(version).text)
        self._note(version=version)

    def _finish(self, run: RunDirectory) -> None:
        if self._tracker is None:
            return
        self._initial()
        summary = read_json(run.summary)
        files = [path for path in (run.report, run.report_md, run.best_skill, run.summary) if path.exists()]
        self._tracker.finish(summary["status"], final_figures(summary), files)

    def _mark(self) -> dict[str, Any]:
        """What this tracker has received so far, over all sessions."""
        path = self._mark_path()
        return dict(read_json(path)) if path.exists() else {}

    def _note(self, **known: Any) -> None:
        write_json(self._mark_path(), self._mark() | known)

    def _mark_path(self) -> Path:
        assert self._run
        return self._run.trackers / f"{self.name}.json"


def open_tracker(name: str) -> Tracker:
    """By its name in the config; its package is imported only now."""
    if name not in _OURS:
        own: Tracker = plugins.instance(plugins.load("trackers", name, key="trackers.use", known=_OURS))
        return own
    tracker: Tracker = getattr(importlib.import_module(f"skillopt.report.trackers.to_{name}"), _OURS[name][0])()
    return tracker
