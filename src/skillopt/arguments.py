"""The keyword arguments of the API's functions, such as `train` and `evaluate`: objects, and keys of the config.

Editors read the types below and in keywords.py. Notebooks do not: for them, `named_by` adds the same keywords at run
time.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from skillopt import keywords
from skillopt.config import Config
from skillopt.keywords import ConfigKeys, EnvKeys, ModelsKeys, TrackersKeys

if TYPE_CHECKING:
    from skillopt.events import Event
    from skillopt.models.base import ChatModel
    from skillopt.skill import Skill
    from skillopt.tasks.agents import Function
    from skillopt.tasks.base import Env
    from skillopt.tasks.memory import ScorerFunction, Tasks
    from skillopt.training.analysts import Propose
    from skillopt.training.analysts.base import Analyst
    from skillopt.training.gates import Gate, Veto
    from skillopt.training.schedule import Shape
    from skillopt.training.session import Mode
    from skillopt.view.trackers import Tracker

F = TypeVar("F", bound=Callable[..., Any])
HEADING = "Keywords:"
"""The heading above the list of keywords that this module adds to a docstring."""


class ModelParts(ModelsKeys, total=False):
    """The value of the keyword `models`: models by role, and keys of the section `models`."""

    target: ChatModel | str
    """The model that does the tasks."""
    optimizer: ChatModel | str
    """The model that reads trajectories and proposes edits."""


class InputParts(TypedDict, total=False):
    """Keywords whose objects replace the tasks and models of the config."""

    tasks: Tasks | None
    """A list of dicts with question and answer, a data frame, a file ("tasks.csv", "hf:org/name"), or {"train": […],
    "val": […], "test": […]}."""
    scorer: ScorerFunction | str | None
    """A function that gets (item, output) and returns a number from 0 to 1, a bool, (number, feedback) or a Score."""
    agent: Function | str | None
    """A function of (item, skill, model) that does a task and returns its answer."""
    env: Env | EnvKeys | str | None
    """An Env, its name, or keys of the section `env`."""
    models: ModelParts | Mapping[str, ChatModel] | None
    """ChatModels by role (`target`, `optimizer`), or keys of the section `models`."""
    progress: bool | Literal["json"] | None
    """True shows progress as the command line does; "json" prints each event as a line of JSON. Unless set, True in a
    notebook or on a terminal, else False."""


class TrainingParts(InputParts, total=False):
    """Keywords whose objects replace other parts of a training that the config names."""

    skill: Skill | str | Path | None
    """The initial skill: a Skill, its text, or the path of its file or package."""
    analysts: str | Sequence[str | Analyst | Propose | type[Analyst]]
    """The analysts: names, Analyst objects, or functions that get (skill, trajectories) and return edits."""
    gate: Gate | str | None
    """An async function (`skillopt.Gate`) that decides in place of the gate that the config names."""
    vetoes: str | Sequence[Veto | str]
    """Functions that may reject what the gate accepts. They get (before, after): the scores by item."""
    schedule: Shape | str | None
    """A function that gets the run's progress and returns the share of the learning rate to use, both from 0 to 1."""
    callbacks: Sequence[Callable[[Event], object]]
    """Functions that get every event; `Trainer.on` adds a function for one type. A function that raises is reported and
    not called again; the run continues."""
    trackers: TrackersKeys | str | Sequence[Tracker | str]
    """Names of trackers, or objects with begin, step, skill, finish and close. A failing tracker cannot harm a run."""
    mode: Mode
    """auto: continue or extend the run of this config, or else begin a run; resume: continue or extend only; fresh:
    always begin a run; separate: like auto, but never extend a run."""


class MeasureArguments(InputParts, ConfigKeys, total=False):
    """The keyword arguments of `evaluate` and `compare`."""


class TrainArguments(TrainingParts, ConfigKeys, total=False):
    """The keyword arguments of `Trainer`, `train` and `replicate`."""

    split: Mapping[str, float]
    """The share of the tasks in each split, such as {"train": 0.5, "val": 0.25, "test": 0.25}."""


def named_by(arguments: type[Mapping[str, object]]) -> Callable[[F], F]:
    """A decorator that adds every keyword of a TypedDict to a function's signature and docstring. The function's code
    does not change."""

    def decorate(function: F) -> F:
        signature, defaults = inspect.signature(function), _defaults()
        named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        keys = {key: value.__forward_arg__ for key, value in arguments.__annotations__.items()}
        more = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(key), annotation=text)
            for key, text in keys.items()
        ]
        function.__signature__ = signature.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
        lines = [f"    {key}: {_meanings()[key]}" for key in keys]
        function.__doc__ = "\n".join([inspect.getdoc(function) or "", "", HEADING, *lines])
        return function

    return decorate


@cache
def _defaults() -> dict[str, object]:
    """The defaults of the config keys, by the name of the key; sections have no default."""
    values = (pair for name, section in Config() if name != "notes" for pair in section)
    return {key: value for key, value in values if key in ConfigKeys.__annotations__}


@cache
def _meanings() -> dict[str, str]:
    """For each keyword: its docstring in this file or in keywords.py."""
    files = [Path(file) for file in (keywords.__file__, __file__)]
    return dict(itertools.chain(*(_described(ast.parse(file.read_text(encoding="utf-8"))) for file in files)))


def _described(tree: ast.Module) -> Iterator[tuple[str, str]]:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name != "NotesKeys")
    for line, below in itertools.chain(*(itertools.pairwise(node.body) for node in classes)):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
            yield ast.unparse(line.target), " ".join(ast.literal_eval(below.value).split())
