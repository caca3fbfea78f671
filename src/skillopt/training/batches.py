"""Divides the training items into steps and epochs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from skillopt.config import TrainConfig
from skillopt.tasks.base import Item


@dataclass(frozen=True, kw_only=True)
class Step:
    number: int
    """The number of the step in the whole run, from 1."""
    epoch: int
    split: Sequence[Item]
    positions: list[int]
    """The positions of the step's items in the split: one batch, or several if gradients are accumulated."""

    @property
    def items(self) -> list[Item]:
        """The step's items. They are read from the split on each call: an env may keep its items on disk."""
        return [self.split[position] for position in self.positions]


def batch_sizes(items: int, config: TrainConfig) -> list[list[int]]:
    """For each epoch, the number of items in each step."""
    size = config.batch_size * config.accumulation
    return [[min(size, items - at) for at in range(0, items, size)]] * config.num_epochs


def plan_steps(items: Sequence[Item], config: TrainConfig) -> list[list[Step]]:
    """The steps of each epoch. Every epoch goes through all items once, in its own random order."""
    epochs: list[list[Step]] = []
    number = 0
    by_id, size = in_id_order(items), config.batch_size * config.accumulation
    for epoch in range(1, config.num_epochs + 1):
        order = list(by_id)
        random.Random(f"{config.seed}/{epoch}/batches").shuffle(order)  # noqa: S311
        steps = []
        for at in range(0, len(order), size):
            number += 1
            steps.append(Step(number=number, epoch=epoch, split=items, positions=order[at : at + size]))
        epochs.append(steps)
    return epochs


def in_id_order(items: Sequence[Item]) -> list[int]:
    """The positions of a split's items, in the order of the items' ids."""
    ids = [item.id for item in items]
    return sorted(range(len(ids)), key=ids.__getitem__)
