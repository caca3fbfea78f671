"""What the command line does, in code: train, evaluate, compare, replicate; each also async."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from skillopt.config import Config
from skillopt.errors import SkillOptError
from skillopt.inputs import ConfigLike, named_parts, read_inputs
from skillopt.loop import trainer as loop
from skillopt.run.directory import RunDirectory
from skillopt.run.result import Result
from skillopt.skill import Skill
from skillopt.sync import run_sync

if TYPE_CHECKING:  # what only some calls need is imported by them
    from skillopt.analysts.base import Analyst
    from skillopt.analysts.custom import Propose
    from skillopt.core.schedule import Shape
    from skillopt.envs.agents import Function
    from skillopt.envs.base import Env
    from skillopt.envs.memory import Scorer, Tasks
    from skillopt.events import Event
    from skillopt.gates import Gate, Veto
    from skillopt.loop.session import Mode
    from skillopt.models.base import ChatModel
    from skillopt.report.trackers import Tracker, Tracking
    from skillopt.run.events import Listener

    AnyAnalyst = str | Analyst | Propose | type[Analyst]
    EnvLike = Env | Mapping[str, Any] | str | None
    ModelsLike = Mapping[str, ChatModel | Any] | None

E = TypeVar("E", bound="Event")
Callback = Callable[[Any], None]
_PASSED_ON = ("skill", "analysts", "gate", "gates", "schedule", "callbacks", "trackers", "mode", "progress")
SkillLike = Skill | str | Path
"""A skill; the path of its file; or `initial` or `best`, of the run that the config makes."""


class Trainer:
    """Trains one skill. The same arguments again continue the run.

    `config` is a Config, a YAML file, a dict, or nothing; keywords are config keys (`num_epochs=2`) or sections
    (`budget={"max_usd": 5}`, `env={"scoring": "contains"}`). In place of what the config names may be passed

    - `tasks`: a list of dicts with question and answer, a file of them ("tasks.csv"), or {"train": […], "val": […],
      "test": […]};
    - `scorer`: a function of (item, output) to a number from 0 to 1, a bool, (number, feedback) or a Score;
    - `agent`: a function of (item, skill, model) that does a task and returns its answer;
    - `skill`: the initial skill, as text in a Skill or as a path;
    - `env`, `models`: an Env, and ChatModels by role (`target`, `optimizer`);
    - `analysts`: names, Analysts, or functions of (skill, trajectories) to edits;
    - `gate`: an async function that decides in place of the config's gate (`skillopt.gates.Gate`);
    - `gates`: functions of (before, after), scores by item, that may reject what the gate accepts;
    - `schedule`: a function of the run's progress to the learning rate's share, both from 0 to 1;
    - `callbacks`: functions of an event; `on` takes those for one type of event;
    - `trackers`: names, or objects with begin, step, skill, finish and close; one that fails never harms the run.

    `progress` shows the run as the command line does.
    """

    def __init__(
        self,
        config: ConfigLike = None,
        *,
        tasks: Tasks | None = None,
        scorer: Scorer | str | None = None,
        agent: Function | str | None = None,
        skill: Skill | str | Path | None = None,
        env: EnvLike = None,
        models: ModelsLike = None,
        analysts: str | Sequence[AnyAnalyst] = (),
        gate: Gate | str | None = None,
        gates: str | Sequence[Veto | str] = (),
        schedule: Shape | str | None = None,
        callbacks: Sequence[Callback] = (),
        trackers: str | Mapping[str, Any] | Sequence[Any] = (),
        mode: Mode = "auto",
        progress: bool = False,
        **keys: Any,
    ) -> None:
        from skillopt.analysts import open_analysts
        from skillopt.analysts.custom import as_analyst
        from skillopt.events import Event
        from skillopt.preflight.components import resolve

        if skill is not None:
            path = "" if isinstance(skill, Skill) else str(skill)
            keys["train"] = {**keys.get("train", {}), "init_skill": path}
        named = {
            "analysts": ("gradient.analysts", analysts),
            "gate": ("evaluation.gate", gate),
            "gates": ("evaluation.gates", gates),
            "schedule": ("optimizer.lr_scheduler", schedule),
            "trackers": ("trackers.use", trackers),
        }
        parts = named_parts(keys, named)
        self._trackers = tuple(parts["trackers"] or ())
        chosen = [as_analyst(a) if not isinstance(a, str) else open_analysts([a])[0] for a in parts["analysts"] or ()]
        given = read_inputs(config, keys, tasks=tasks, scorer=scorer, agent=agent, env=env, models=models)
        self.config, self.env, self.models = given.config, given.env, given.models
        own = {"gate": parts["gate"], "vetoes": parts["gates"] or (), "schedule": parts["schedule"]}
        resolved = resolve(self.config, analysts=chosen, **own)
        self._callbacks: list[tuple[type[Event], Callback]] = [(Event, callback) for callback in callbacks]
        self._progress = progress
        self._running: asyncio.AbstractEventLoop | None = None
        self._trainer: loop.TrainingLoop | None = None
        self._make: Callable[[Sequence[Listener]], loop.TrainingLoop] = lambda listeners: loop.TrainingLoop(
            self.config,
            env=self.env,
            models=self.models,
            listeners=listeners,
            mode=mode,
            parts=resolved,
            initial_skill=skill if isinstance(skill, Skill) else None,
        )

    @overload
    def on(self, kind: type[E]) -> Callable[[Callable[[E], None]], Callable[[E], None]]: ...
    @overload
    def on(self, kind: type[E], callback: Callable[[E], None]) -> Callable[[E], None]: ...
    def on(self, kind: type[E], callback: Callable[[E], None] | None = None) -> Any:
        """Call a function at every event of a type (`events.Event` for all); also as a decorator."""
        if callback is None:
            return lambda function: self.on(kind, function)
        self._callbacks.append((kind, callback))
        return callback

    def fit(self) -> Result:
        """Train to the end and write the report; also in a notebook, whose event loop is left alone."""
        return run_sync(self.fit_async(), self._stop)

    async def fit_async(self) -> Result:
        """As `fit`, for code that is async."""
        self._running = asyncio.get_running_loop()
        with self._listeners() as listeners:
            result = await fit_and_report(self._make_and_keep, self.config, listeners, self._trackers)
        if self._progress:
            from skillopt.report.console import open_console, show_result

            show_result(result, open_console())
        return result

    def _make_and_keep(self, listeners: Sequence[Listener]) -> loop.TrainingLoop:
        self._trainer = self._make(listeners)
        return self._trainer

    def interrupt(self) -> None:
        """Stop cleanly, as Ctrl-C does; from a callback or from another thread. `fit` then raises Stopped."""
        self._stop()

    def _stop(self) -> bool:
        """False where nothing has begun that could be stopped cleanly."""
        if self._running is None or self._trainer is None or not self._trainer.started:
            return False
        self._running.call_soon_threadsafe(self._trainer.interrupt)
        return True

    @contextlib.contextmanager
    def _listeners(self) -> Iterator[list[Listener]]:
        from skillopt.events import typed
        from skillopt.report.console import open_console, watching

        def tell(raw: Any) -> None:
            event = typed(raw)
            for kind, callback in self._callbacks:
                if isinstance(event, kind):
                    callback(event)

        if not self._progress:
            yield [tell]
            return
        with watching(open_console()) as shown:
            yield [shown, tell]


def train(config: ConfigLike = None, **arguments: Any) -> Result:
    """Train a skill to the end and write the report; the arguments are those of `Trainer`.

    Ctrl-C stops with everything paid for kept; the same call again continues.
    """
    return Trainer(config, **arguments).fit()


async def train_async(config: ConfigLike = None, **arguments: Any) -> Result:
    """As `train`, for code that is async."""
    return await Trainer(config, **arguments).fit_async()


async def evaluate_async(
    config: ConfigLike,
    skill: SkillLike,
    *,
    split: str = "test",
    tasks: Tasks | None = None,
    scorer: Scorer | str | None = None,
    agent: Function | str | None = None,
    env: EnvLike = None,
    models: ModelsLike = None,
    **keys: Any,
) -> dict[str, Any]:
    """As `evaluate`, for code that is async."""
    from skillopt.measure.evaluate import evaluate as run_evaluation

    given = read_inputs(config, keys, tasks=tasks, scorer=scorer, agent=agent, env=env, models=models)
    found, path = _skill_of(skill, given.config, given.env)
    return await run_evaluation(given.config, found, split=split, skill_path=path, env=given.env, models=given.models)


def evaluate(config: ConfigLike, skill: SkillLike, **arguments: Any) -> dict[str, Any]:
    """A skill's score on a split (`split="test"`), as `eval_summary.json` has it: score, interval, hard, soft, failed …

    A read of the test split is recorded in the folder of the run that the skill is from.
    """
    return run_sync(evaluate_async(config, skill, **arguments))


async def compare_async(
    config: ConfigLike,
    a: SkillLike,
    b: SkillLike,
    *,
    split: str = "val",
    repeats: int = 1,
    tasks: Tasks | None = None,
    scorer: Scorer | str | None = None,
    agent: Function | str | None = None,
    env: EnvLike = None,
    models: ModelsLike = None,
    **keys: Any,
) -> dict[str, Any]:
    """As `compare`, for code that is async."""
    from skillopt.measure.compare import compare as run_comparison

    given = read_inputs(config, keys, tasks=tasks, scorer=scorer, agent=agent, env=env, models=models)
    sides = [_skill_of(side, given.config, given.env) for side in (a, b)]
    return await run_comparison(given.config, *sides, split=split, repeats=repeats, env=given.env, models=given.models)


def compare(config: ConfigLike, a: SkillLike, b: SkillLike, **arguments: Any) -> dict[str, Any]:
    """Two skills on the same items, as `comparison.json` has it: difference, interval, p, and the items' lists."""
    return run_sync(compare_async(config, a, b, **arguments))


async def replicate_async(config: ConfigLike = None, *, seeds: int = 5, **arguments: Any) -> dict[str, Any]:
    """As `replicate`, for code that is async."""
    from skillopt.measure.replicate import replicate as run_seeds

    first = Trainer(config, **arguments)
    numbers = range(first.config.train.seed, first.config.train.seed + seeds)
    passed = {name: arguments[name] for name in _PASSED_ON if name in arguments}
    objects = {"env": first.env, "models": first.models}
    return await run_seeds(first.config, numbers, lambda own: train_async(own, **objects, **passed))


def replicate(config: ConfigLike = None, *, seeds: int = 5, **arguments: Any) -> dict[str, Any]:
    """Train under several seeds: rows, mean, interval and share improved. Other arguments are those of `Trainer`."""
    return run_sync(replicate_async(config, seeds=seeds, **arguments))


async def train_config(
    config: Config, *, listeners: Sequence[Listener] = (), mode: Mode = "auto", **how: Any
) -> Result:
    """What the commands call: a config, listeners and nothing passed in."""
    return await fit_and_report(
        lambda told: loop.TrainingLoop(config, listeners=told, mode=mode, **how), config, listeners
    )


async def fit_and_report(
    make: Callable[[Sequence[Listener]], loop.TrainingLoop],
    config: Config,
    listeners: Sequence[Listener],
    trackers: Sequence[Tracker] = (),
) -> Result:
    """Ctrl-C stops with everything paid for kept; again, it leaves at once. The report is written in either case."""
    from skillopt.report.trackers import tracking

    async with tracking(config, tuple(listeners), trackers) as tracker:
        trainer = make([*listeners, tracker])
        with _interruptible(trainer):
            try:
                result = await trainer.fit()
            except SkillOptError:
                if trainer.started and trainer.run.summary.exists():
                    _report(trainer.run, tracker)
                raise
        _report(RunDirectory(result.path), tracker)
    return result


def _report(run: RunDirectory, tracker: Tracking) -> None:
    from skillopt.report.html import write_report

    write_report(run)
    tracker.finish(run)


def _skill_of(skill: SkillLike, config: Config, env: Env | None) -> tuple[Skill, Path | None]:
    from skillopt.measure.compare import find_skill

    return (skill, None) if isinstance(skill, Skill) else find_skill(str(skill), config, None, env)


class _interruptible(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """SIGINT and SIGTERM end the run cleanly; a second one has its usual effect."""

    def __init__(self, trainer: loop.TrainingLoop) -> None:
        self._trainer = trainer
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
                self._loop.add_signal_handler(number, self._once)

    def __exit__(self, *error: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.remove_signal_handler(number)

    def _once(self) -> None:
        self.__exit__()
        self._trainer.interrupt()
