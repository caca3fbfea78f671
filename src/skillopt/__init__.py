"""SkillOpt trains skill documents for frozen LLM agents. `__all__` below lists the whole public API.

Each name is imported when it is first used, so `import skillopt` takes almost no time.
"""

import importlib
import typing

from skillopt.version import __version__

if typing.TYPE_CHECKING:
    from skillopt import events
    from skillopt.adapters import from_dspy, from_gepa
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
    from skillopt.arguments import MeasureArguments, TrainArguments
    from skillopt.config import Config
    from skillopt.errors import SkillOptError, Stopped, UserError
    from skillopt.models.base import ChatModel, ChatReply, ChatRequest, FatalError, RefusedError, TransientError, Usage
    from skillopt.models.weights import weights_path
    from skillopt.record.result import Result
    from skillopt.record.results import Comparison, EvalSummary, Replication
    from skillopt.skill import Edit, Skill
    from skillopt.tasks.base import Env, Episode, Item, Score, ScorerError, Trajectory
    from skillopt.tasks.tools import Tool, run_tools, start
    from skillopt.training.analysts.base import Analyst
    from skillopt.training.gates import Gate, Verdict, paired_gate, strict_gate

__all__ = [
    "Analyst",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Comparison",
    "Config",
    "Edit",
    "Env",
    "Episode",
    "EvalSummary",
    "FatalError",
    "Gate",
    "Item",
    "MeasureArguments",
    "RefusedError",
    "Replication",
    "Result",
    "Score",
    "ScorerError",
    "Skill",
    "SkillOptError",
    "Stopped",
    "Tool",
    "TrainArguments",
    "Trainer",
    "Trajectory",
    "TransientError",
    "Usage",
    "UserError",
    "Verdict",
    "__version__",
    "compare",
    "compare_async",
    "evaluate",
    "evaluate_async",
    "events",
    "from_dspy",
    "from_gepa",
    "paired_gate",
    "replicate",
    "replicate_async",
    "run_tools",
    "start",
    "strict_gate",
    "train",
    "train_async",
    "weights_path",
]

_ELSEWHERE = {
    "adapters": ("from_dspy", "from_gepa"),
    "arguments": ("MeasureArguments", "TrainArguments"),
    "training.analysts.base": ("Analyst",),
    "training.gates": ("Gate", "Verdict", "paired_gate", "strict_gate"),
    "config": ("Config",),
    "tasks.base": ("Env", "Episode", "Item", "Score", "ScorerError", "Trajectory"),
    "tasks.tools": ("Tool", "run_tools", "start"),
    "errors": ("SkillOptError", "Stopped", "UserError"),
    "models.base": ("ChatModel", "ChatReply", "ChatRequest", "FatalError", "RefusedError", "TransientError", "Usage"),
    "models.weights": ("weights_path",),
    "record.result": ("Result",),
    "record.results": ("Comparison", "EvalSummary", "Replication"),
    "skill": ("Edit", "Skill"),
}
"""For each module other than `skillopt.api`: the public names that it defines."""


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'skillopt' has no attribute '{name}'")
    if name == "events":
        return importlib.import_module("skillopt.events")
    home = next((module for module, names in _ELSEWHERE.items() if name in names), "api")
    return getattr(importlib.import_module(f"skillopt.{home}"), name)


def __dir__() -> list[str]:
    return __all__
