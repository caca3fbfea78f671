"""SkillOpt trains skill documents for frozen LLM agents. The public API on one screen."""

from skillopt.api import train
from skillopt.config import Config
from skillopt.envs.base import Env
from skillopt.loop.evaluate import evaluate
from skillopt.loop.trainer import Result, Trainer
from skillopt.skill import Edit, Skill
from skillopt.version import __version__

__all__ = ["Config", "Edit", "Env", "Result", "Skill", "Trainer", "__version__", "evaluate", "train"]
