"""(e) Ray with one and two workers on games: python bench/cluster.py

Trainings on TextWorld's games (5 rooms, 70 objects: an action takes 10 to 20 ms of CPU) and, where alfworld is
installed, on ALFWorld's (70 ms and more): locally, and on clusters of one and two CPUs on this machine. The same
history and skill are required of all three. Starting Ray is not counted. Making the games takes minutes at first. They
stay in the user's cache. The driver needs a core, too: on two cores, what it takes is missing to the second worker.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.envs import open_env
from skillopt.envs.games.env import GameEnv, made_of
from skillopt.envs.games.pool import GamePool
from skillopt.loop.trainer import Trainer
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Event

REPO = Path(__file__).parent.parent
SIZES = {"train": 16, "val": 8, "test": 8}
OURS = ["models.target_model=sim:player", "models.optimizer_model=sim:player", "hardware.workers=8"]
RECIPE = {"rooms": 5, "objects": 70, "quest_length": 8}


async def write_games(folder: Path) -> None:
    """A split folder with the recipes of large games; each is made, so that it is there when it is played."""
    pool, seeds = GamePool("textworld"), itertools.count(1)
    try:
        for split, size in SIZES.items():
            recipes = [{"seed": next(seeds), **RECIPE} for _ in range(size)]
            goals = await asyncio.gather(*(made(pool, recipe) for recipe in recipes))
            rows = [
                {"id": f"{split}-{n}", "question": goal, "recipe": recipe}
                for n, (goal, recipe) in enumerate(zip(goals, recipes, strict=True))
            ]
            (folder / split).mkdir(parents=True)
            (folder / split / "items.json").write_text(json.dumps(rows))
    finally:
        pool.close()


async def made(pool: GamePool, recipe: dict[str, int]) -> str:
    """The goal of a recipe's game, which is made unless it is in the cache."""
    place = made_of("textworld", recipe)
    goal = place / "goal.txt"
    if not goal.exists():
        place.mkdir(parents=True, exist_ok=True)
        facts = await pool.build(recipe, place / "game.z8")
        goal.write_text(facts["objective"].strip())
    return goal.read_text()


async def make_games(config: Config) -> None:
    """The games of an env's recipes are there before anything is timed."""
    env = open_env(config)
    assert isinstance(env, GameEnv)
    try:
        await asyncio.gather(*(env.game_file(item) for split in SIZES for item in env.items(split)))
    finally:
        env.close()


def timed(out: Path, config: Config) -> tuple[float, Any]:
    config = config.model_copy(update={"env": config.env.model_copy(update={"output_root": str(out)})})
    started: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "run_started":  # the workers are there
            started.append(time.monotonic())

    result = asyncio.run(Trainer(config, listeners=[listen]).fit())
    run = RunDirectory(result.path)
    history = [{k: v for k, v in row.items() if k != "telemetry"} for row in json.loads(run.history.read_text())]
    return time.monotonic() - started[0], (json.dumps(history, sort_keys=True), result.best_skill.text)


def on_ray(out: Path, config: Config, cpus: int) -> tuple[float, Any]:
    os.environ.setdefault("RAY_worker_niceness", "0")  # as where SkillOpt starts Ray itself
    import ray

    hardware = config.hardware.model_copy(update={"executor": "ray"})
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    try:
        return timed(out, config.model_copy(update={"hardware": hardware}))
    finally:
        ray.shutdown()


def measure(engine: str, *more: str) -> dict[str, Any]:
    config = Config.load(REPO / "configs" / engine / "mini.yaml", [*OURS, *more])
    asyncio.run(make_games(config))
    with tempfile.TemporaryDirectory() as folder:
        here, expected = timed(Path(folder) / "local", config)
        one, first = on_ray(Path(folder) / "one", config, 1)
        two, second = on_ray(Path(folder) / "two", config, 2)
    same = first == second == expected
    return {"local_seconds": here, "seconds": [one, two], "gain": one / two, "same": same}


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write_games(Path(folder) / "games"))
        own = [f"env.split_dir={folder}/games", "env.options={steps: 40, history: 10}", "train.batch_size=16"]
        found = {"TextWorld": measure("textworld", *own)}
    if importlib.util.find_spec("alfworld"):
        found["ALFWorld"] = measure("alfworld", "env.options={steps: 12, history: 4}")
    return found


if __name__ == "__main__":
    print(main())
