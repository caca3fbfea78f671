"""The simulated world's tasks: each asks for the codes of one or more topics."""

from __future__ import annotations

import random

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.sim.model import TOPICS, code_for
from skillopt.sim.optimizer import SEALED
from skillopt.tasks.base import Item
from skillopt.tasks.qa import QAEnv, QAOptions


class SimWorld(Options):
    """`env.options` of the simulated world."""

    world: int = 0
    """The number that selects the secret codes; must be the same as the model's `world`."""
    rules: int = Field(default=12, ge=1, le=len(TOPICS))
    """The number of hidden rules to learn."""
    topics_per_item: int = Field(default=2, ge=1, le=4)
    """The maximum number of codes that a task asks for."""
    systemic: float = Field(default=0, ge=0, le=1)
    """The share of tasks that fail for one common cause, which only deep reflection finds."""
    train: int = Field(default=40, ge=1)
    val: int = Field(default=40, ge=1)
    test: int = Field(default=40, ge=1)


class SimEnv(QAEnv):
    """The tasks of the simulated world: questions with generated answers."""

    task = "Each task asks for the secret codes of some topics; the reply is the codes in that order."

    def __init__(self, config: EnvConfig) -> None:
        world = SimWorld.read(config.options, "env.options")
        super().__init__(config, make_splits(world), QAOptions())


def make_splits(world: SimWorld) -> dict[str, list[Item]]:
    """Make the items of each split. Every rule occurs about equally often in every split, and no two splits share an
    item."""
    topics = TOPICS[: world.rules]
    draw = random.Random(f"sim/{world.world}")  # noqa: S311
    return {
        split: [_item(split, number, topics, world, draw) for number in range(getattr(world, split))]
        for split in ("train", "val", "test")
    }


def _item(split: str, number: int, topics: tuple[str, ...], world: SimWorld, draw: random.Random) -> Item:
    first = topics[number % len(topics)]
    others = draw.sample(
        [t for t in topics if t != first], min(number // len(topics) % world.topics_per_item, len(topics) - 1)
    )
    asked = [first, *others]
    sealed = number * 7 % 10 < world.systemic * 10
    codes = [code_for(topic, world.world) for topic in asked]
    return Item(
        id=f"{split}-{number:03d}",
        question=f"{split.title()} ticket {number}. Give the codes for: {', '.join(asked)}." + f" {SEALED}" * sealed,
        answers=(" ".join([*codes, "SEALED"] if sealed else codes),),
        type=f"{len(asked)} codes" if len(asked) > 1 else "1 code",
    )
