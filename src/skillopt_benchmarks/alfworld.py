"""Makes items from ALFWorld's official games. The package `games/` plays these games."""

from __future__ import annotations

import json
import os
from pathlib import Path

from skillopt.errors import UserError
from skillopt.tasks.base import Item
from skillopt.tasks.splits import in_turn
from skillopt_benchmarks.rows import split_hash, write_splits
from skillopt_benchmarks.sources import DataSource

OFFICIAL = {"train": ("train", 39), "val": ("valid_seen", 18), "test": ("valid_unseen", 134)}
"""For each split: the official folder with its games, and the number of games that are used from this folder."""


def prepare(out: Path) -> dict[str, int]:
    """Write items for the official games below ALFWORLD_DATA, alternating between the task types. Return the sizes of
    the splits."""
    data = os.environ.get("ALFWORLD_DATA", "")
    root = Path(data) / "json_2.1.1"
    if not data or not root.is_dir():
        raise UserError(
            "alfworld: set ALFWORLD_DATA to the folder with json_2.1.1/ (`alfworld-download` of the package alfworld "
            "downloads json_2.1.1/). Or make games in the same format: `skillopt data generate alfworld --out FOLDER`"
        )
    splits = {}
    for split, (folder, count) in OFFICIAL.items():
        games = sorted((root / folder).glob("*/trial_*/game.tw-pddl"), key=lambda path: split_hash(path.parent.name))
        items = [item for path in games if (item := _item(path, Path(data)))]
        if not items:
            raise UserError(f"{root / folder}: has no game.tw-pddl; run `alfworld-download`")
        splits[split] = [items[index] for index in in_turn([item.type for item in items])[:count]]
    return write_splits(out, splits)


def _item(path: Path, data: Path) -> Item | None:
    """Return the item for a game; None if the game cannot be won, or has a movable receptacle or a sliced object. Such
    a game is not of the six task types."""
    game = json.loads(path.read_text(encoding="utf-8"))
    about = json.loads(path.with_name("traj_data.json").read_text(encoding="utf-8"))
    if not game.get("solvable", True) or "movable" in path.parent.parent.name or "Sliced" in path.parent.parent.name:
        return None
    goal = game["grammar"].split("Your task is to: ", 1)[-1].split('"')[0].split("\n")[0].strip().rstrip(".;")
    return Item.model_validate(
        {
            "id": f"{path.parent.parent.name}/{path.parent.name}",
            "question": f"Your task is to: {goal or about['turk_annotations']['anns'][0]['task_desc']}.",
            "type": about["task_type"],
            "game": str(path.relative_to(data)),
        }
    )


SOURCE = DataSource(prepare=prepare, sizes={split: size for split, (_, size) in OFFICIAL.items()})
