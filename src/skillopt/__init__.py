"""SkillOpt trains skill documents for frozen LLM agents. The public API on one screen: these names and no others."""

from skillopt import events
from skillopt.analysts.base import Analyst
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
from skillopt.envs.base import Env, Episode, Item, Score, Trajectory
from skillopt.errors import SkillOptError, Stopped, UserError
from skillopt.models.base import ChatModel, ChatReply, ChatRequest
from skillopt.run.result import Result
from skillopt.skill import Edit, Skill
from skillopt.version import __version__

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
