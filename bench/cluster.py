"""(e) Compare Ray with one and two workers on games: python bench/cluster.py

Trains on TextWorld's games (with 5 rooms and 70 objects an action takes 10 to 20 ms of CPU, with 10 rooms and 140
objects about twice that) and, if alfworld is installed, on ALFWorld's games (70 ms and more), with 16 games at once. It
trains locally and on clusters of one and two CPUs on this machine. All three must have the same history and skill. The
start of Ray is not counted. The first run makes the games, which takes minutes; they stay in the user's cache. The
driver also needs a core, so on two cores the second worker gets less than a whole core.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.training.trainer import TrainingLoop
from skillopt_benchmarks.games.env import made_of
from skillopt_benchmarks.games.generate import TASKS
from skillopt_benchmarks.games.pool import GamePool

REPO = Path(__file__).parent.parent
sys.path.insert(0, str(REPO / "tests"))

from support.simulated_player import SimulatedPlayer  # noqa: E402 - it stands with the tests

PLAYER = ["models.target_model=sim:world", "models.optimizer_model=sim:world"]
OURS = [*PLAYER, "hardware.workers=16", "train.num_epochs=1"]


@dataclass(frozen=True)
class Games:
    """A set of games: the engine, the number of games in each split, and the recipe of the n-th game."""

    name: str
    engine: str
    suffix: str
    sizes: dict[str, int]
    recipe: Callable[[int], dict[str, Any]]
    options: str


PLAYED = (
    Games(
        "TextWorld, 70 objects",
        "textworld",
        ".z8",
        {"train": 32, "val": 16, "test": 16},
        lambda n: {"seed": n, "rooms": 5, "objects": 70, "quest_length": 8},
        "{steps: 40, history: 10}",
    ),
    Games(
        "TextWorld, 140 objects",
        "textworld",
        ".z8",
        {"train": 16, "val": 8, "test": 8},
        lambda n: {"seed": n, "rooms": 10, "objects": 140, "quest_length": 8},
        "{steps: 40, history: 10}",
    ),
    Games(
        "ALFWorld",
        "alfworld",
        ".tw-pddl",
        {"train": 12, "val": 6, "test": 6},
        lambda n: {"task": TASKS[n % len(TASKS)], "seed": 300000 + n},
        "{steps: 20, history: 4}",
    ),
)


async def write_games(games: Games, folder: Path) -> None:
    """Write a split folder with the games' recipes, and make all games, so they exist before the trainings begin."""
    pool, numbers = GamePool(games.package), itertools.count(1)
    try:
        for split, size in games.sizes.items():
            recipes = [games.recipe(next(numbers)) for _ in range(size)]
            goals = await asyncio.gather(*(made(pool, games, recipe) for recipe in recipes))
            rows = [
                {"id": f"{split}-{n}", "question": goal, "recipe": recipe}
                for n, (goal, recipe) in enumerate(zip(goals, recipes, strict=True))
            ]
            (folder / split).mkdir(parents=True)
            (folder / split / "items.json").write_text(json.dumps(rows))
    finally:
        pool.close()


async def made(pool: GamePool, games: Games, recipe: dict[str, Any]) -> str:
    """Return the goal of a recipe's game. The game is made if it is not in the cache."""
    place = made_of(games.package, recipe)
    goal = place / "goal.txt"
    if not goal.exists():
        place.mkdir(parents=True, exist_ok=True)
        facts = await pool.build({**recipe, "plan": False}, place / f"game{games.suffix}")
        goal.write_text(facts.objective.strip())
    return goal.read_text()


def timed(out: Path, config: Config) -> tuple[float, Any]:
    config = config.model_copy(update={"env": config.env.model_copy(update={"output_root": str(out)})})
    started: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "run_started":  # from now on the workers are ready
            started.append(time.monotonic())

    player = SimulatedPlayer("sim:world")
    models = {"target": player, "optimizer": player}
    result = asyncio.run(TrainingLoop(config, models=models, listeners=[listen]).fit())
    run = RunDirectory(result.path)
    history = [{k: v for k, v in row.items() if k != "telemetry"} for row in json.loads(run.history.read_text())]
    return time.monotonic() - started[0], (json.dumps(history, sort_keys=True), result.best_skill.text)


def on_ray(out: Path, config: Config, cpus: int) -> tuple[float, Any]:
    os.environ.setdefault("RAY_worker_niceness", "0")  # the same as when SkillOpt starts Ray
    import ray

    hardware = config.hardware.model_copy(update={"executor": "ray"})
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    try:
        return timed(out, config.model_copy(update={"hardware": hardware}))
    finally:
        ray.shutdown()


def measure(games: Games) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write_games(games, Path(folder) / "games"))
        own = [f"env.split_dir={folder}/games", f"env.options={games.options}"]
        own.append(f"train.batch_size={games.sizes['train']}")
        config = Config.load(REPO / "configs" / games.package / "mini.yaml", [*OURS, *own])
        here, expected = timed(Path(folder) / "local", config)
        one, first = on_ray(Path(folder) / "one", config, 1)
        two, second = on_ray(Path(folder) / "two", config, 2)
    same = first == second == expected
    return {"local_seconds": here, "seconds": [one, two], "gain": one / two, "same": same}


def main() -> dict[str, Any]:
    return {games.name: measure(games) for games in PLAYED if importlib.util.find_spec(games.package)}


if __name__ == "__main__":
    print(main())
