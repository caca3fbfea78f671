"""Makes sets of games from a seed. A set has either recipes, from which the env makes each game, or the games' files in
the format of their package."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from skillopt.errors import UserError
from skillopt.tasks.base import SPLITS, Item
from skillopt_benchmarks.games.env import made_of
from skillopt_benchmarks.games.pool import GameError, GamePool, Recipe
from skillopt_benchmarks.rows import write_splits

TASKS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six task types of ALFWorld."""
ROOMS, LENGTHS = (1, 2, 3), (1, 2, 3, 4)
"""The numbers of rooms and of steps in TextWorld's games. The games use these numbers in turn."""


async def generate(engine: str, sizes: dict[str, int], seed: int, out: Path, *, files: bool) -> dict[str, int]:
    """Write a split folder of games that can be won. With `files`, the folder also contains the games themselves."""
    pool = GamePool(engine)
    counts: dict[str, int] = {}
    work = tempfile.TemporaryDirectory(prefix="skillopt-games-")
    try:
        numbers = iter(range(seed * 100_000, (seed + 1) * 100_000))
        seen: set[str] = set()
        for split in SPLITS:
            items: list[Item] = []
            while len(items) < sizes[split]:
                batch = [next(numbers) for _ in range(min(8, sizes[split] - len(items)))]
                made = await asyncio.gather(
                    *(_one(pool, engine, n, split, out, Path(work.name) / str(n), files) for n in batch)
                )
                for item in filter(None, made):
                    game = f"{item.question}{item['walkthrough']}"
                    if game not in seen and len(items) < sizes[split]:
                        seen.add(game)
                        items.append(item)
            counts |= write_splits(out, {split: items})
    except StopIteration:
        raise UserError("generate: there are too few different games; ask for fewer games") from None
    finally:
        pool.close()
        work.cleanup()
    return counts


async def _one(
    pool: GamePool, engine: str, number: int, split: str, out: Path, folder: Path, files: bool
) -> Item | None:
    """Make a game and return its item; None if the game cannot be won."""
    folder.mkdir()
    recipe, suffix = _recipe(engine, number)
    path = folder / f"game{suffix}"
    try:
        facts = await pool.build(recipe, path)
        kind = str(recipe.get("task") or f"{recipe['quest_length']} steps")
        goal = facts.objective.strip()
        question = f"Your task is to: {goal}." if engine == "alfworld" else goal
        target = out / _official(engine, split, facts.name, number) if files else made_of(engine, recipe)
        if not target.exists():  # the recipe's game may exist from an earlier call
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, target)
        game = {"game": str((target / path.name).relative_to(out))} if files else {"recipe": recipe}
        about = {"id": f"{engine}-{number}", "question": question, "type": kind, "walkthrough": facts.walkthrough}
        return Item.model_validate({**about, **game})
    except GameError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _recipe(engine: str, number: int) -> tuple[Recipe, str]:
    if engine == "alfworld":
        return {"task": TASKS[number % len(TASKS)], "seed": number}, ".tw-pddl"
    rooms, length = ROOMS[number % len(ROOMS)], LENGTHS[number % len(LENGTHS)]
    return {"seed": number, "rooms": rooms, "objects": rooms + 4, "quest_length": length}, ".z8"


def _official(engine: str, split: str, name: str, number: int) -> str:
    """Return the path of a game. For ALFWorld it is the official path, so ALFWorld's own environment finds the game."""
    if engine != "alfworld":
        return f"games/{number}"
    folder = {"train": "train", "val": "valid_seen", "test": "valid_unseen"}[split]
    return f"json_2.1.1/{folder}/{name}/trial_G{number:08d}"
