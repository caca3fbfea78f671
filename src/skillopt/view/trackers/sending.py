"""Between a run and its trackers: one thread calls them, so that a slow one does not stall the run."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from skillopt import plugins
from skillopt.config import Config, TrackersConfig
from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.record.directory import RunDirectory, safe_name
from skillopt.record.events import Event, Listener, TrackerFailed
from skillopt.record.files import read_json, write_json
from skillopt.record.run import Run
from skillopt.record.step import EpochEnd, StepRecord
from skillopt.view.trackers.base import About, Tracker, final_figures, step_scalars

TIMEOUT = 30.0
"""Seconds that the trackers have at the end of a run to send what they still hold."""
_BACKLOG = 1000
"""Calls that may wait; what comes after them is not sent."""
_BUILT_IN = {
    "tensorboard": ("TensorBoard", "tensorboard"),
    "mlflow": ("MLflow", "mlflow"),
    "wandb": ("WandB", "wandb"),
    "otel": ("OpenTelemetry", "opentelemetry.sdk"),
}
"""The class in `to_<name>.py`, and the package that it imports."""
Job = Callable[[str, Tracker], None]


def check_trackers(settings: TrackersConfig) -> None:
    """Refuse, before anything is paid, a tracker whose package is not installed."""
    for name in settings.use:
        if name in _BUILT_IN and not _importable(_BUILT_IN[name][1]):
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
    sender = Tracking(config, others, passed_in)
    try:
        yield sender
    finally:
        await asyncio.to_thread(sender.close)


class Tracking:
    """Listens to a run and calls its trackers. Without trackers it does nothing."""

    def __init__(self, config: Config, others: tuple[Listener, ...] = (), passed_in: Sequence[Tracker] = ()) -> None:
        self._config, self._others = config, others
        self._open = {name: partial(open_tracker, name) for name in config.trackers.use}
        self._open |= {safe_name(plugins.named(each)): partial(plugins.instance, each) for each in passed_in}
        self._opened: dict[str, Tracker] = {}
        self._jobs: queue.Queue[Job | None] = queue.Queue(_BACKLOG)
        self._errors: dict[str, str] = {}
        """Of trackers that failed, until the listeners are informed."""
        self._thread: threading.Thread | None = None
        self._run = RunDirectory(Path())
        self._began = 0.0

    def __call__(self, event: Event) -> None:
        if event.kind == "run_started":
            self._run = RunDirectory(Path(event.data["path"]))
            self._thread = threading.Thread(target=self._work, name="trackers", daemon=True) if self._open else None
            if self._thread:
                self._thread.start()
            self._send(self._begin)
        elif event.kind == "rollout_started":
            self._began = event.time
        elif event.kind == "step_finished":
            record, began = StepRecord.model_validate(event.data["record"]), self._began or event.time
            if record.step == 1:
                self._send_skill(0, 0)
            self._send(lambda _, tracker: tracker.step(record.step, step_scalars(record), began, event.time))
            if record.evidence.accepted:
                self._send_skill(record.version, record.step)
        elif event.kind == "epoch_finished":
            guided = EpochEnd.model_validate(event.data["outcome"]).slow_update
            if guided and guided.decision == "accept":
                self._send_skill(guided.version, event.step)
        self._report_errors()

    def finish(self) -> None:
        """The report is written: send it."""
        self._send(self._finish)

    def close(self) -> None:
        if self._thread:
            with suppress(queue.Full):
                self._jobs.put(None, timeout=TIMEOUT)
            self._thread.join(TIMEOUT)
            if self._thread.is_alive():
                self._errors |= dict.fromkeys(self._open, f"did not answer within {TIMEOUT:g} s")
        self._report_errors()

    def _send(self, job: Job) -> None:
        if self._thread:
            with suppress(queue.Full):
                self._jobs.put_nowait(job)

    def _send_skill(self, version: int, step: int) -> None:
        self._send(lambda _, tracker: tracker.skill(version, step, self._run.read_skill(version).shown.text))

    def _work(self) -> None:
        """In the thread. A tracker that fails is closed and not called again."""
        while (job := self._jobs.get()) is not None:
            for name in list(self._open):
                try:
                    self._opened[name] = self._opened.get(name) or self._open[name]()
                    job(name, self._opened[name])
                except Exception as error:
                    self._errors[name] = redact(f"{type(error).__name__}: {error}")
                    self._close(name)
        for name in list(self._open):
            self._close(name)

    def _close(self, name: str) -> None:
        with suppress(Exception):
            if tracker := self._opened.get(name):
                tracker.close()
        del self._open[name]

    def _report_errors(self) -> None:
        for name in list(self._errors):
            event = TrackerFailed(name=name, error=self._errors.pop(name))
            for listener in self._others:
                listener(event)

    def _begin(self, name: str, tracker: Tracker) -> None:
        """The tracker's id of the run is stored, so that a resumed run continues there."""
        id_file = self._run.trackers / f"{name}.json"
        about = About(
            name=f"{self._run.root.parent.name}/{self._run.root.name}",
            folder=self._run.trackers / name,
            config=self._config.flat(),
            settings=self._config.trackers,
            earlier_id=str(read_json(id_file)["id"]) if id_file.exists() else "",
        )
        about.folder.mkdir(parents=True, exist_ok=True)
        write_json(id_file, {"id": tracker.begin(about)})

    def _finish(self, name: str, tracker: Tracker) -> None:
        run, summary = self._run, Run(self._run).summary
        files = [path for path in (run.report, run.report_md, run.best_skill, run.summary) if path.exists()]
        if summary:
            tracker.finish(summary.status, final_figures(summary), files)


def open_tracker(name: str) -> Tracker:
    """By its name in the config; its package is imported only now."""
    if name not in _BUILT_IN:
        return plugins.instance(plugins.load("trackers", name, key="trackers.use", known=_BUILT_IN))  # type: ignore[no-any-return]
    module = importlib.import_module(f"skillopt.view.trackers.to_{name}")
    return getattr(module, _BUILT_IN[name][0])()  # type: ignore[no-any-return]
