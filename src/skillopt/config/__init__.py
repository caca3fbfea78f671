"""The config: a pydantic model for each section, YAML with `_base_`, overrides, and the refused anti-patterns."""

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
