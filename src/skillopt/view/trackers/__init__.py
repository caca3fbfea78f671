"""Trackers send the events of a run, as they happen, to tools such as MLflow. If a tracker fails, the run continues."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from skillopt import plugins
from skillopt.config import Config, TrackersConfig
from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.record import events
from skillopt.record.directory import RunDirectory, safe_name
from skillopt.record.events import Event, Listener
from skillopt.record.run import Run
from skillopt.view.trackers.base import About, Tracker, final_figures, step_scalars

__all__ = ["About", "Tracker", "Tracking", "check_trackers"]

_BUILT_IN = {
    "tensorboard": ("TensorBoard", "tensorboard"),
    "mlflow": ("MLflow", "mlflow"),
    "wandb": ("WandB", "wandb"),
    "otel": ("OpenTelemetry", "opentelemetry.sdk"),
}
"""The built-in trackers by name: the class in `to_<name>.py`, and the package that it imports."""


def check_trackers(settings: TrackersConfig) -> None:
    """Raise UserError if a tracker in the config needs a package that is not installed."""
    for name in settings.use:
        if name in _BUILT_IN and not _importable(_BUILT_IN[name][1]):
            raise UserError(
                f"trackers.use: '{name}' needs a package that is not installed: pip install 'skillopt[{name}]'"
            )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is not installed either
        return False


class Tracking:
    """Listens to a run and calls its trackers. If a tracker fails, it is not called again, and the listeners in
    `others` get an event."""

    def __init__(self, config: Config, others: tuple[Listener, ...] = (), passed_in: Sequence[Tracker] = ()) -> None:
        check_trackers(config.trackers)
        self._config, self._others = config, others
        self._open = {name: partial(open_tracker, name) for name in config.trackers.use}
        self._open |= {safe_name(plugins.named(each)): partial(plugins.instance, each) for each in passed_in}
        self._trackers: dict[str, Tracker] = {}
        self._run = RunDirectory(Path())
        self._began = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.RunStarted):
            self._run = RunDirectory(Path(event.path))
            for name in self._open:
                self._try(name, self._begin)
        elif isinstance(event, events.RolloutStarted):
            self._began = event.time
        elif isinstance(event, events.StepFinished):
            record = event.record
            if record.step == 1:
                self._send_skill(0, 0)
            scalars, began = step_scalars(record), self._began or event.time
            self._send(lambda tracker: tracker.step(record.step, scalars, began, event.time))
            if record.evidence.accepted:
                self._send_skill(record.version, record.step)
        elif isinstance(event, events.EpochFinished):
            guided = event.outcome.slow_update
            if guided and guided.decision == "accept":
                self._send_skill(guided.version, event.step)

    def finish(self) -> None:
        """Send the final figures and the files of the report. The report must already exist."""
        run, summary = self._run, Run(self._run).summary
        files = [path for path in (run.report, run.report_md, run.best_skill, run.summary) if path.exists()]
        if summary:
            self._send(lambda tracker: tracker.finish(summary.status, final_figures(summary), files))

    def close(self) -> None:
        self._send(lambda tracker: tracker.close())

    def _begin(self, name: str) -> None:
        folder = self._run.trackers / name
        folder.mkdir(parents=True, exist_ok=True)
        about = About(
            name=f"{self._run.root.parent.name}/{self._run.root.name}",
            folder=folder,
            config=self._config.flat(),
            settings=self._config.trackers,
        )
        self._trackers[name] = self._open[name]()
        self._trackers[name].begin(about)

    def _send_skill(self, version: int, step: int) -> None:
        self._send(lambda tracker: tracker.skill(version, step, self._run.read_skill(version).shown.text))

    def _send(self, call: Callable[[Tracker], None]) -> None:
        for name in list(self._trackers):
            self._try(name, lambda name: call(self._trackers[name]))

    def _try(self, name: str, call: Callable[[str], None]) -> None:
        """Call a tracker. If it fails, close it and do not call it again."""
        try:
            call(name)
        except Exception as error:
            if tracker := self._trackers.pop(name, None):
                with suppress(Exception):
                    tracker.close()
            for listener in self._others:
                listener(events.TrackerFailed(name=name, error=redact(f"{type(error).__name__}: {error}")))


def open_tracker(name: str) -> Tracker:
    """The tracker with this name in the config. Its package is imported only now."""
    if name not in _BUILT_IN:
        return plugins.instance(plugins.load("trackers", name, key="trackers.use", known=_BUILT_IN))  # type: ignore[no-any-return]
    module = importlib.import_module(f"skillopt.view.trackers.to_{name}")
    return getattr(module, _BUILT_IN[name][0])()  # type: ignore[no-any-return]
