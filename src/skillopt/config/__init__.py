"""The config: a pydantic model for each section, and functions that read YAML files (with `_base_`) and overrides.
Settings whose results cannot be trusted are refused."""

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
