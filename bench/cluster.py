"""(e) Ray with one and two workers on TextWorld: python bench/cluster.py

One training on large games (5 rooms, 70 objects), of which an action takes 10 to 20 ms of CPU, locally and on clusters
of one and two CPUs on this machine; the same history and skill are required of all three. Starting Ray is not counted.
Making the games takes some minutes the first time; they are kept in the user's cache.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.envs.games.env import made_of
from skillopt.envs.games.pool import GamePool
from skillopt.loop.trainer import Trainer
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Event

REPO = Path(__file__).parent.parent
SIZES = {"train": 16, "val": 8, "test": 8}
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


def timed(out: Path, *more: str) -> tuple[float, Any]:
    own = [
        f"env.output_root={out}",
        "env.options={steps: 40, history: 10}",
        "train.batch_size=16",
        "hardware.workers=8",
    ]
    config = Config.load(REPO / "configs" / "textworld" / "mini.yaml", [*own, *more])
    started: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "run_started":  # the workers are there
            started.append(time.monotonic())

    result = asyncio.run(Trainer(config, listeners=[listen]).fit())
    run = RunDirectory(result.path)
    history = [{k: v for k, v in row.items() if k != "telemetry"} for row in json.loads(run.history.read_text())]
    return time.monotonic() - started[0], (json.dumps(history, sort_keys=True), result.best_skill.text)


def on_ray(out: Path, cpus: int, games: str) -> tuple[float, Any]:
    os.environ.setdefault("RAY_worker_niceness", "0")  # as where SkillOpt starts Ray itself
    import ray

    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    try:
        return timed(out, games, "hardware.executor=ray")
    finally:
        ray.shutdown()


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        asyncio.run(write_games(out / "games"))
        games = f"env.split_dir={out / 'games'}"
        here, expected = timed(out / "local", games)
        one, first = on_ray(out / "one", 1, games)
        two, second = on_ray(out / "two", 2, games)
    same = first == second == expected
    return {"local_seconds": here, "seconds": [one, two], "gain": one / two, "same": same}


if __name__ == "__main__":
    print(main())
