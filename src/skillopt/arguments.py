"""The keyword arguments of the API's functions (`train`, `evaluate`, …). A keyword is a config key or takes an object.

Editors read the types below and in keywords.py. Notebooks do not read types, so `named_by` adds the same keywords to
the functions at run time.
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
    """Keywords for objects that replace the tasks and models of the config."""

    tasks: Tasks | None
    """A list of dicts with `question` and `answer`, a data frame, a file ("tasks.csv"), a data set ("hf:org/name"), or
    {"train": […], "val": […], "test": […]}."""
    scorer: ScorerFunction | str | None
    """A function that gets (item, output) and returns a number from 0 to 1, a bool, (number, feedback) or a Score."""
    agent: Function | str | None
    """A function that gets (item, skill, model), does the task and returns the answer."""
    env: Env | EnvKeys | str | None
    """An Env, the name of an env, or a dict of keys of the section `env`."""
    models: ModelParts | Mapping[str, ChatModel] | None
    """A dict: ChatModels by role (`target`, `optimizer`), or keys of the section `models`."""
    progress: bool | Literal["json"] | None
    """True: show progress as the command line does; "json": print each event as a line of JSON. The default is True in
    a notebook or on a terminal, and False elsewhere."""


class TrainingParts(InputParts, total=False):
    """Keywords for all parts of a training, not only tasks and models. An object replaces the part that the config
    names."""

    skill: Skill | str | Path | None
    """The initial skill: a Skill, its text, or the path of its file or package."""
    analysts: str | Sequence[str | Analyst | Propose | type[Analyst]]
    """The analysts: names, Analyst objects, or functions that get (skill, trajectories) and return edits."""
    gate: Gate | str | None
    """An async function (`skillopt.Gate`) that decides in place of the gate that the config names."""
    vetoes: str | Sequence[Veto | str]
    """Functions that may reject a candidate that the gate accepts. Each gets (before, after): the scores by item under
    the current skill and under the candidate."""
    schedule: Shape | str | None
    """A function that gets the run's progress (0 to 1) and returns a position of the learning rate (0: its lowest
    value, 1: its full value)."""
    callbacks: Sequence[Callable[[Event], object]]
    """Functions that get every event; `Trainer.on` adds a function for one type of event. If a function raises an
    error, the error is printed and the function is not called again; the run continues."""
    trackers: TrackersKeys | str | Sequence[Tracker | str]
    """Names of trackers, or objects with the methods `begin`, `step`, `skill`, `finish` and `close`. If a tracker
    fails, the run continues."""
    mode: Mode
    """Which run to train. "auto": continue or extend the run of this config; if there is none, begin a run. "resume":
    only continue or extend a run. "fresh": always begin a run. "separate": like "auto", but never extend a run."""


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
    """The default of each config key, by the key's name without the section. Sections have no default."""
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
