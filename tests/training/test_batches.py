"""Every epoch goes through the whole training split once, in an order that the seed fixes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from weakref import WeakSet

from hypothesis import given
from hypothesis import strategies as st

from skillopt.config import TrainConfig
from skillopt.tasks.base import Item
from skillopt.training.batches import plan_steps


class Held(Item):
    def __hash__(self) -> int:
        return id(self)


def items(count: int) -> list[Item]:
    return [Item(id=f"i{n:03d}", question=f"{n}?", answers=("a",)) for n in range(count)]


def plan(count: int = 30, **fields: int) -> list[list[list[str]]]:
    """Epochs of steps of ids."""
    epochs = plan_steps(items(count), TrainConfig(**fields))  # type: ignore[arg-type]
    return [[[item.id for item in step.items] for step in steps] for steps in epochs]


configs = st.fixed_dictionaries(
    {
        "num_epochs": st.integers(1, 4),
        "batch_size": st.integers(1, 40),
        "accumulation": st.integers(1, 5),
        "seed": st.integers(-5, 10**12),
    }
)


@given(st.integers(1, 50), configs)
def test_every_epoch_goes_through_all_items_once(count: int, config: dict[str, int]) -> None:
    epochs = plan(count, **config)
    assert len(epochs) == config["num_epochs"]
    for steps in epochs:
        seen = [name for step in steps for name in step]
        assert sorted(seen) == [item.id for item in items(count)]


@given(st.integers(1, 50), configs)
def test_steps_are_full_but_for_the_last_of_an_epoch(count: int, config: dict[str, int]) -> None:
    for steps in plan(count, **config):
        size = config["batch_size"] * config["accumulation"]
        assert all(len(step) == size for step in steps[:-1])
        assert 0 < len(steps[-1]) <= size


@given(st.integers(1, 50), configs)
def test_steps_are_numbered_through_the_run(count: int, config: dict[str, int]) -> None:
    epochs = plan_steps(items(count), TrainConfig(**config))  # type: ignore[arg-type]
    steps = [step for steps in epochs for step in steps]
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.epoch == epoch for epoch, own in enumerate(epochs, 1) for step in own)


@given(st.integers(1, 50), configs, st.randoms(use_true_random=False))
def test_the_order_in_the_file_does_not_matter(count: int, config: dict[str, int], chance: random.Random) -> None:
    shuffled = items(count)
    chance.shuffle(shuffled)
    train = TrainConfig(**config)  # type: ignore[arg-type]
    drawn, other = (
        [(step.number, step.items) for steps in plan_steps(split, train) for step in steps]
        for split in (shuffled, items(count))
    )
    assert drawn == other


def test_a_split_that_reads_from_disk_is_read_item_by_item() -> None:
    class OnDisk(Sequence[Item]):
        """Makes an item when it is asked for, and lets go of it."""

        def __init__(self) -> None:
            self.held: WeakSet[Held] = WeakSet()
            self.most = 0

        def __len__(self) -> int:
            return 5000

        def __getitem__(self, place: int) -> Item:  # type: ignore[override]
            if place >= len(self):
                raise IndexError
            item = Held(id=f"i{place:05d}", question="?", answers=("a",))
            self.held.add(item)
            self.most = max(self.most, len(self.held))
            return item

    split = OnDisk()
    epochs = plan_steps(split, TrainConfig(num_epochs=3, batch_size=40))
    assert sum(len(step.positions) for steps in epochs for step in steps) == 15_000
    assert split.most < 10, "the plan holds items"
    assert len(epochs[1][3].items) == 40


def test_the_same_seed_gives_the_same_batches_and_another_seed_others() -> None:
    assert plan(seed=1) == plan(seed=1)
    assert plan(seed=1) != plan(seed=2)


def test_each_epoch_has_an_order_of_its_own() -> None:
    first, second = plan(num_epochs=2)
    assert first != second


def test_another_number_of_epochs_leaves_the_earlier_ones_as_they_are() -> None:
    assert plan(num_epochs=4)[:2] == plan(num_epochs=2)


def test_accumulation_pools_batches_into_steps_without_changing_them() -> None:
    single, pooled = plan(batch_size=7, num_epochs=1), plan(batch_size=7, num_epochs=1, accumulation=2)
    assert [len(step) for step in pooled[0]] == [14, 14, 2]
    assert [item for step in pooled[0] for item in step] == [item for step in single[0] for item in step]
