"""The text games of TextWorld and ALFWorld. Their engines run in separate processes."""

from skillopt_benchmarks.games.env import AlfWorldEnv, GameEnv, TextWorldEnv

__all__ = ["AlfWorldEnv", "GameEnv", "TextWorldEnv"]
