"""The order in which the training split is gone through."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from skillopt.config import TrainConfig
from skillopt.envs.base import Item


@dataclass(frozen=True, kw_only=True)
class Step:
    number: int
    """1 … over the whole run."""
    epoch: int
    batches: list[list[Item]]
    """More than one where gradients are accumulated."""

    @property
    def items(self) -> list[Item]:
        return [item for batch in self.batches for item in batch]


def plan_steps(items: Sequence[Item], config: TrainConfig) -> list[list[Step]]:
    """The steps of each epoch. Every epoch goes through all items once, in an order of its own."""
    epochs: list[list[Step]] = []
    number = 0
    for epoch in range(1, config.num_epochs + 1):
        order = sorted(items, key=lambda item: item.id)
        random.Random(f"{config.seed}/{epoch}/batches").shuffle(order)  # noqa: S311
        batches = [order[at : at + config.batch_size] for at in range(0, len(order), config.batch_size)]
        steps = []
        for at in range(0, len(batches), config.accumulation):
            number += 1
            steps.append(Step(number=number, epoch=epoch, batches=batches[at : at + config.accumulation]))
        epochs.append(steps)
    return epochs
