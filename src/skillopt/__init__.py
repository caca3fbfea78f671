"""SkillOpt trains skill documents for frozen LLM agents. The public API on one screen: these names and no others.

A name is imported when it is first used, so that `import skillopt` costs next to nothing.
"""

import importlib
import typing

from skillopt.version import __version__

if typing.TYPE_CHECKING:
    from skillopt import events
    from skillopt.api import (
        Trainer,
        compare,
        compare_async,
        evaluate,
        evaluate_async,
        replicate,
        replicate_async,
        train,
        train_async,
    )
    from skillopt.config import Config
    from skillopt.errors import SkillOptError, Stopped, UserError
    from skillopt.models.base import ChatModel, ChatReply, ChatRequest, Usage
    from skillopt.record.result import Result
    from skillopt.skill import Edit, Skill
    from skillopt.tasks.base import Env, Episode, Item, Score, Trajectory
    from skillopt.training.analysts.base import Analyst

__all__ = [
    "Analyst",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Config",
    "Edit",
    "Env",
    "Episode",
    "Item",
    "Result",
    "Score",
    "Skill",
    "SkillOptError",
    "Stopped",
    "Trainer",
    "Trajectory",
    "Usage",
    "UserError",
    "__version__",
    "compare",
    "compare_async",
    "evaluate",
    "evaluate_async",
    "events",
    "replicate",
    "replicate_async",
    "train",
    "train_async",
]

_ELSEWHERE = {
    "training.analysts.base": ("Analyst",),
    "config": ("Config",),
    "tasks.base": ("Env", "Episode", "Item", "Score", "Trajectory"),
    "errors": ("SkillOptError", "Stopped", "UserError"),
    "models.base": ("ChatModel", "ChatReply", "ChatRequest", "Usage"),
    "record.result": ("Result",),
    "skill": ("Edit", "Skill"),
}
"""The module of each name that `api` does not have."""


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'skillopt' has no attribute '{name}'")
    if name == "events":
        return importlib.import_module("skillopt.events")
    home = next((module for module, names in _ELSEWHERE.items() if name in names), "api")
    return getattr(importlib.import_module(f"skillopt.{home}"), name)


def __dir__() -> list[str]:
    return __all__
