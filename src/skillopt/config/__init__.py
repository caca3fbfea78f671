"""The config: a pydantic model for each section, YAML files with `_base_`, overrides, and settings that are refused."""

from skillopt.config.config import Config
from skillopt.config.sections import (
    BudgetConfig,
    EnvConfig,
    EvaluationConfig,
    GradientConfig,
    HardwareConfig,
    ModelsConfig,
    NotesConfig,
    OptimizerConfig,
    Price,
    TrackersConfig,
    TrainConfig,
)

__all__ = [
    "BudgetConfig",
    "Config",
    "EnvConfig",
    "EvaluationConfig",
    "GradientConfig",
    "HardwareConfig",
    "ModelsConfig",
    "NotesConfig",
    "OptimizerConfig",
    "Price",
    "TrackersConfig",
    "TrainConfig",
]
