"""The Python functions `train`, `evaluate`, `compare` and `replicate`, which do the same as the commands. Each function
has an async form."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from skillopt import plugins
from skillopt.arguments import MeasureArguments, TrainArguments, named_by
from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt.inputs import ConfigLike, Inputs, Keys, SkillLike, named_parts, read_inputs, read_skill_input
from skillopt.keys import redact
from skillopt.record.result import Result
from skillopt.skill import Skill
from skillopt.sync import one_message, run_sync
from skillopt.training.trainer import TrainingLoop

if TYPE_CHECKING:  # each function imports modules that only it needs
    from skillopt.events import Event
    from skillopt.record.events import Listener
    from skillopt.record.results import Comparison, EvalSummary, Replication
    from skillopt.tasks.base import Env
    from skillopt.training.session import Mode
    from skillopt.view.trackers import Tracker

E = TypeVar("E", bound="Event")
Callback = Callable[[Any], None]
Progress = bool | Literal["json"]
_PASSED_ON = ("skill", "analysts", "gate", "vetoes", "gates", "schedule", "callbacks", "trackers")


class Trainer:
    """Trains one skill. If an earlier run with the same arguments is unfinished, training continues that run.

    `config` is a Config, the path of a YAML file, a dict or None; a list is read as `tasks`. A keyword is a config key
    (`num_epochs=2`), a section (`budget={"max_usd": 5}`, `env={"scoring": "contains"}`), or an object that replaces a
    name in the config (a function as the `scorer`).
    """

    @one_message
    @named_by(TrainArguments)
    def __init__(self, config: ConfigLike = None, **arguments: Unpack[TrainArguments]) -> None:
        from skillopt.events import Event
        from skillopt.training.analysts import as_analyst, open_analysts
        from skillopt.training.parts import resolve

        keys: Keys = {**arguments}
        vetoes = keys.pop("vetoes", ())
        if "gates" in keys:
            warnings.warn("Trainer(gates=…) is now vetoes=…", FutureWarning, stacklevel=2)
            vetoes = keys.pop("gates")
        skill = keys.pop("skill", None)
        initial = None if skill is None else read_skill_input(skill)
        if initial is not None:
            path = "" if isinstance(initial, Skill) else initial
            keys["train"] = {**keys.get("train", {}), "init_skill": path}
        named = {
            "analysts": ("gradient.analysts", keys.pop("analysts", ())),
            "gate": ("evaluation.gate", keys.pop("gate", None)),
            "vetoes": ("evaluation.vetoes", vetoes),
            "schedule": ("optimizer.lr_scheduler", keys.pop("schedule", None)),
            "trackers": ("trackers.use", keys.pop("trackers", ())),
        }
        callbacks: Sequence[Callback] = keys.pop("callbacks", ())
        self._mode: Mode = _one_of("mode", keys.pop("mode", "auto"), ("auto", "resume", "fresh", "separate"))
        self._progress = shows_progress(keys.pop("progress", None))
        parts = named_parts(keys, named)
        self._trackers = tuple(parts["trackers"] or ())
        for name in ("gate", "schedule"):
            _functions(name, [parts[name]] if parts[name] is not None else ())
        _functions("vetoes", parts["vetoes"] or ())
        _functions("callbacks", callbacks)
        if not isinstance(parts["analysts"] or (), Sequence):
            raise UserError(f"analysts: {parts['analysts']!r} is not a list of functions or names")
        chosen = [as_analyst(a) if not isinstance(a, str) else open_analysts([a])[0] for a in parts["analysts"] or ()]
        resolved = read_inputs(config, **keys)
        self.config, self.models, self._inputs = resolved.config, resolved.models, resolved
        overrides = {"gate": parts["gate"], "vetoes": parts["vetoes"] or (), "schedule": parts["schedule"]}
        self._parts = resolve(self.config, analysts=chosen, **overrides)
        self._initial = initial if isinstance(initial, Skill) else None
        self._callbacks: list[tuple[type[Event], Callback]] = [(Event, callback) for callback in callbacks]
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._training: TrainingLoop | None = None

    @property
    def env(self) -> Env | None:
        """The env that was passed in, or that was made from tasks or functions that were passed in; None if the config
        alone defines the env."""
        return self._inputs.env

    @overload
    def on(self, kind: type[E]) -> Callable[[Callable[[E], None]], Callable[[E], None]]: ...
    @overload
    def on(self, kind: type[E], callback: Callable[[E], None]) -> Callable[[E], None]: ...
    def on(self, kind: type[E], callback: Callable[[E], None] | None = None) -> Any:
        """Call a function at every event of a type; `events.Event` means all types. `on` can also be used as a
        decorator."""
        if callback is None:
            return lambda function: self.on(kind, function)
        self._callbacks.append((kind, callback))
        return callback

    def fit(self) -> Result:
        """Train to the end, write the report and return the result. This method also works in a notebook."""
        return run_sync(self.fit_async(), self._stop)

    async def fit_async(self) -> Result:
        """The async form of `fit`."""
        self._event_loop = asyncio.get_running_loop()
        async with self._inputs.open():
            with self._listeners() as listeners:
                self._training = new_training(
                    self.config,
                    env=self.env,
                    models=self.models,
                    listeners=listeners,
                    mode=self._mode,
                    parts=self._parts,
                    initial_skill=self._initial,
                )
                result = await fit_and_report(self._training, self._trackers)
        if self._progress is True:
            from skillopt.view.console import open_console, show_result

            show_result(result, open_console())
        return result

    def interrupt(self) -> None:
        """Stop the run cleanly, as Ctrl-C does; `fit` then raises Stopped. Call this method from a callback or from
        another thread."""
        self._stop()

    def _stop(self) -> bool:
        """Stop the run cleanly. Returns False if no run has begun."""
        if self._event_loop is None or self._training is None or not self._training.started:
            return False
        self._event_loop.call_soon_threadsafe(self._training.interrupt)
        return True

    @contextlib.contextmanager
    def _listeners(self) -> Iterator[list[Listener]]:
        def tell(event: Event) -> None:
            for entry in [entry for entry in self._callbacks if isinstance(event, entry[0])]:
                try:
                    entry[1](event)
                except Exception:
                    self._callbacks.remove(entry)
                    _report_callback(entry[1], event.kind)

        with _showing(self._progress) as shown:
            yield [*shown, tell]


@contextlib.contextmanager
def _showing(progress: Progress) -> Iterator[Sequence[Listener]]:
    """Yield a list with one listener, which shows events as they happen; if `progress` is False, yield an empty
    list."""
    if not progress:
        yield ()
        return
    from skillopt.view.console import open_console, watching

    with watching(open_console(), as_json=progress == "json") as shown:
        yield (shown,)


def _one_of(name: str, value: Any, known: Sequence[Any]) -> Any:
    if value not in known:
        raise UserError(f"{name}: {value!r} is not one of {', '.join(map(str, known))}")
    return value


def _functions(name: str, parts: Any) -> None:
    """Raise UserError if a part is neither callable nor a name. Without this check, the error would come only after
    paid calls."""
    if not isinstance(parts, Sequence):
        raise UserError(f"{name}: {parts!r} is not a list of functions")
    for part in parts:
        if not isinstance(part, str) and not callable(part):
            raise UserError(f"{name}: {part!r} is neither a function nor the name of one")


def shows_progress(chosen: Progress | None) -> Progress:
    """Return the caller's choice or, if that choice is None: True in a notebook or on a terminal, False elsewhere."""
    _one_of("progress", chosen, (None, True, False, "json"))
    return (in_notebook() or sys.stdout.isatty()) if chosen is None else chosen


def in_notebook() -> bool:
    """True if this process runs the cells of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _report_callback(callback: Callback, kind: str) -> None:
    """Print that a callback failed, with the traceback of its error."""
    text = f"skillopt: the callback '{plugins.named(callback)}' failed at the event '{kind}'. This callback is not "
    text += f"called again, and the run continues (trainer.interrupt() stops a run).\n{traceback.format_exc()}"
    print(redact(text), file=sys.stderr)


@one_message
@named_by(TrainArguments)
def train(config: ConfigLike = None, **arguments: Unpack[TrainArguments]) -> Result:
    """Train a skill to the end and write the report; the arguments are those of `Trainer`.

    Ctrl-C stops the run and keeps all paid replies. The same call then continues the run.
    """
    return Trainer(config, **arguments).fit()


@named_by(TrainArguments)
async def train_async(config: ConfigLike = None, **arguments: Unpack[TrainArguments]) -> Result:
    """The async form of `train`."""
    return await Trainer(config, **arguments).fit_async()


@named_by(MeasureArguments)
async def evaluate_async(
    config: ConfigLike, skill: SkillLike, *, split: str = "test", **inputs: Unpack[MeasureArguments]
) -> EvalSummary:
    """The async form of `evaluate`."""
    from skillopt.measure.evaluate import evaluate as run_evaluation

    async with _measuring(config, inputs) as (resolved, objects):
        measured_skill, path = _skill_of(skill, resolved.config, resolved.env)
        return await run_evaluation(resolved.config, measured_skill, split=split, skill_path=path, **objects)


@one_message
@named_by(MeasureArguments)
def evaluate(
    config: ConfigLike, skill: SkillLike, *, split: str = "test", **inputs: Unpack[MeasureArguments]
) -> EvalSummary:
    """Measure a skill on a split. Return the content of `eval_summary.json`: score, interval, hard, soft, failed …

    If the skill is from a run and the split is `test`, that run's folder records that the test split was read. The
    keywords, such as `tasks`, mean the same as for `Trainer`.
    """
    return run_sync(evaluate_async(config, skill, split=split, **inputs))


@named_by(MeasureArguments)
async def compare_async(
    config: ConfigLike,
    a: SkillLike,
    b: SkillLike,
    *,
    split: str = "val",
    repeats: int = 1,
    **inputs: Unpack[MeasureArguments],
) -> Comparison:
    """The async form of `compare`."""
    from skillopt.measure.compare import compare as run_comparison

    async with _measuring(config, inputs) as (resolved, objects):
        sides = [_skill_of(side, resolved.config, resolved.env) for side in (a, b)]
        return await run_comparison(resolved.config, *sides, split=split, repeats=repeats, **objects)


@one_message
@named_by(MeasureArguments)
def compare(
    config: ConfigLike,
    a: SkillLike,
    b: SkillLike,
    *,
    split: str = "val",
    repeats: int = 1,
    **inputs: Unpack[MeasureArguments],
) -> Comparison:
    """Compare two skills on the same items. Return the content of `comparison.json`: difference, interval, p, items.

    The keywords, such as `tasks`, mean the same as for `Trainer`.
    """
    return run_sync(compare_async(config, a, b, split=split, repeats=repeats, **inputs))


@named_by(TrainArguments)
async def replicate_async(
    config: ConfigLike = None, *, seeds: int = 5, **arguments: Unpack[TrainArguments]
) -> Replication:
    """The async form of `replicate`."""
    from skillopt.measure.replicate import replicate as run_seeds

    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise UserError(f"seeds: {seeds!r} is not a whole number above 0")
    first = Trainer(config, **arguments)
    numbers = range(first.config.train.seed, first.config.train.seed + seeds)
    more: Keys = {name: value for name, value in arguments.items() if name in _PASSED_ON}
    more |= {"mode": "separate", "progress": False, "models": first.models}
    with _showing(first._progress) as shown:
        more["callbacks"] = [*more.get("callbacks", ()), *shown]
        async with first._inputs.open():
            more["env"] = first.env
            return await run_seeds(first.config, numbers, lambda own: train_async(own, **more))


@one_message
@named_by(TrainArguments)
def replicate(config: ConfigLike = None, *, seeds: int = 5, **arguments: Unpack[TrainArguments]) -> Replication:
    """Train with several seeds. The other arguments are those of `Trainer`. Return a row for each seed, with the means
    and intervals over all seeds."""
    return run_sync(replicate_async(config, seeds=seeds, **arguments))


@contextlib.asynccontextmanager
async def _measuring(config: ConfigLike, inputs: MeasureArguments) -> AsyncIterator[tuple[Inputs, Keys]]:
    """Open the inputs. Yield them with the keyword arguments of a measurement: env, models, listeners."""
    keys: Keys = {**inputs}
    progress = shows_progress(keys.pop("progress", None))
    resolved = read_inputs(config, **keys)
    with _showing(progress) as shown:
        async with resolved.open():
            yield resolved, {"env": resolved.env, "models": resolved.models, "listeners": shown}


def new_training(config: Config, **arguments: Any) -> TrainingLoop:
    """Make a training loop that runs the usual preflight and adds the verdict to the summary."""
    from skillopt.preflight.doctor import preflight
    from skillopt.view.diagnosis import with_verdict

    return TrainingLoop(config, preflight=preflight, with_verdict=with_verdict, **arguments)


async def train_config(config: Config, **arguments: Any) -> Result:
    """Train one config, for commands that train several. The other arguments are those of `TrainingLoop`."""
    return await fit_and_report(new_training(config, **arguments))


async def fit_and_report(training: TrainingLoop, trackers: Sequence[Tracker] = ()) -> Result:
    """Train, then write the report, even if the run was stopped. The first Ctrl-C stops the run and keeps all paid
    replies; a second Ctrl-C ends the process at once."""
    from skillopt.view.html import write_report
    from skillopt.view.trackers import Tracking

    with contextlib.closing(Tracking(training.config, tuple(training.listeners), trackers)) as tracker:
        training.listeners.append(tracker)
        error: SkillOptError | None = None
        try:
            with _interruptible(training, asyncio.get_running_loop()):
                result = await training.fit()
        except SkillOptError as stopped:
            error = stopped
        if training.started and training.run.summary.exists():
            write_report(training.run)
            tracker.finish()
        if error:
            raise error
    return result


def _skill_of(skill: SkillLike, config: Config, env: Env | None) -> tuple[Skill, Path | None]:
    from skillopt.measure.compare import WORDS, find_skill

    resolved = read_skill_input(skill, WORDS)
    return (resolved, None) if isinstance(resolved, Skill) else find_skill(resolved, config, None, env)


@contextlib.contextmanager
def _interruptible(training: TrainingLoop, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """In this block, the first SIGINT or SIGTERM ends the run cleanly; a second signal has its usual effect."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def once(*_: object) -> None:
        """Handle a signal, even if the event loop is busy, for example because it reads a large file."""
        reset()
        if training.started:
            loop.call_soon_threadsafe(training.interrupt)
        else:
            training.interrupt()

    def reset() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    for number in usual:
        signal.signal(number, once)
    try:
        yield
    finally:
        reset()
