"""The program of a process that plays games. child.py reads the requests to this process and writes the answers, one by
one.

A process can play any number of games at the same time. If a game fails, the answer to its request is an error; the
other games continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from skillopt.processes import child

if TYPE_CHECKING:
    from skillopt.chat_protocol import JsonObject
    from skillopt_benchmarks.games.pool import Recipe


class GameRequest(TypedDict, total=False):
    do: str
    """The requested action: `build`, `start`, `step` or `close`."""
    game: int
    recipe: Recipe
    path: str
    command: str


def begin(setup: dict[str, str]) -> Callable[[GameRequest], JsonObject]:
    return partial(handle, ENGINES[setup["engine"]](), {})


def explain(error: BaseException) -> dict[str, str]:
    return {"error": f"{type(error).__name__}: {error}"[:500]}


def handle(engine: Engine, games: dict[int, Any], request: GameRequest) -> JsonObject:
    game = request.get("game", 0)
    if request["do"] == "build":
        return engine.build(request["recipe"], Path(request["path"]))
    if request["do"] == "start":
        games[game] = engine.start(request["path"])
        return known(games[game].reset(), done=False)
    if request["do"] == "step":
        state, _, done = games[game].step(request["command"])
        return known(state, done=bool(done))
    closed = games.pop(game, None)
    if closed is not None:
        closed.close()
    return {}


def known(state: Any, *, done: bool) -> JsonObject:
    """Return a game's state as the player sees it, and whether the game is won. A title in ASCII art is left out."""
    text = str(state.feedback).split("\n> ")[0].strip().rstrip(">").strip()
    text = text[text.find("-= ") :] if "$$" in text and "-= " in text else text
    return {
        "observation": text.removeprefix("-= Welcome to TextWorld, ALFRED! =-").strip(),
        "commands": sorted(state.admissible_commands or []),
        "won": bool(state.won),
        "done": done,
    }


class TextWorld:
    """TextWorld's games, compiled for the Z-machine."""

    def start(self, path: str) -> Any:
        import textworld

        infos = textworld.EnvInfos(admissible_commands=True, objective=True, won=True, lost=True, feedback=True)
        return textworld.start(path, infos)

    def build(self, recipe: Recipe, path: Path) -> JsonObject:
        """Make the game of a recipe, which has `seed`, `rooms`, `objects` and `quest_length`. Return the game's goal
        and a way to win."""
        import textworld
        import textworld.generator

        options = textworld.GameOptions()
        options.seeds = int(recipe["seed"])
        options.nb_rooms, options.nb_objects = int(recipe["rooms"]), int(recipe["objects"])
        options.quest_length, options.quest_breadth = int(recipe["quest_length"]), 1
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            options.path = str(Path(folder) / path.name)
            game = textworld.generator.make_game(options)
            textworld.generator.compile_game(game, options)
            for made in Path(folder).glob(f"{path.stem}.*"):
                if made.suffix != path.suffix:
                    made.replace(path.with_suffix(made.suffix))
            Path(options.path).replace(path)  # written last: a file with this name is complete
        return {"objective": game.objective, "walkthrough": list(game.metadata["walkthrough"])}


class AlfWorld:
    """Household games in ALFWorld's format, played in ALFWorld's engine."""

    def start(self, path: str) -> Any:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

        infos = textworld.EnvInfos(admissible_commands=True, won=True, feedback=True)
        return textworld.start(path, infos, wrappers=[AlfredDemangler(shuffle=False)])

    def build(self, recipe: Recipe, path: Path) -> JsonObject:
        """Write game.tw-pddl and traj_data.json. If the recipe asks for a plan, a planner must find a way to win."""
        from skillopt_benchmarks.games.alfworld_games import make_game

        made = make_game(str(recipe["task"]), int(recipe["seed"]))
        path.with_name("traj_data.json").write_text(json.dumps(made.trajectory, indent=1))
        unfinished = path.with_name(f"unfinished-{os.getpid()}.tw-pddl")
        unfinished.write_text(json.dumps(made.game))
        try:
            walkthrough = self._plan(str(unfinished)) if recipe.get("plan", True) else []
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        return {"objective": made.goal, "walkthrough": list(walkthrough), "name": made.name}

    def _plan(self, path: str) -> list[str]:
        """Return the actions with which the planner wins; it runs once, not at every step. The actions are also played
        in the game: raise ValueError if they do not win."""
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

        infos = textworld.EnvInfos(policy_commands=True)
        with contextlib.closing(textworld.start(path, infos, wrappers=[AlfredDemangler(shuffle=False)])) as planned:
            plan = list(planned.reset().policy_commands or [])
        with contextlib.closing(self.start(path)) as game:
            state = game.reset()
            for command in plan:
                state, _, _ = game.step(command)
        if not state.won:
            raise ValueError("the planner does not win this game")
        return plan


Engine = TextWorld | AlfWorld
ENGINES: dict[str, type[Engine]] = {"textworld": TextWorld, "alfworld": AlfWorld}

if __name__ == "__main__":
    child.serve(begin, explain)
