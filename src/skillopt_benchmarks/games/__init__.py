"""Text games: TextWorld and ALFWorld, played over many turns, with the engines in separate processes."""

from skillopt_benchmarks.games.env import AlfWorldEnv, GameEnv, TextWorldEnv

__all__ = ["AlfWorldEnv", "GameEnv", "TextWorldEnv"]
