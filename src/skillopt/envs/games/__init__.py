"""Text games: TextWorld and ALFWorld, played over many turns, the engines in processes of their own."""

from skillopt.envs.games.env import AlfWorldEnv, GameEnv, TextWorldEnv

__all__ = ["AlfWorldEnv", "GameEnv", "TextWorldEnv"]
