"""Nothing waits that need not: what a run does side by side, seen at the models' doors."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from skillopt.config import Config
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.models.limiter import Slots
from skillopt.sim.model import SimulatedModel
from skillopt.training.gates import Veto
from skillopt.training.parts import resolve
from skillopt.training.trainer import TrainingLoop
from support import SIM

pytestmark = pytest.mark.usefixtures("virtual_time")


class Door:
    """A simulated model whose calls take a while of virtual time, and which remembers when each began and ended."""

    deterministic, endpoint = True, "sim"

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self._seconds, self._model = name, seconds, SimulatedModel(name)
        self.calls: list[tuple[str, float, float]] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        start = time.monotonic()
        await asyncio.sleep(self._seconds)
        reply = await self._model.chat(request)
        what = request.schema.name if request.schema else str(request.messages[-1]["content"]).split()[0].lower()
        self.calls.append((what, start, time.monotonic()))
        return reply

    async def close(self) -> None:
        return

    def span(self, what: str) -> tuple[float, float]:
        own = [(start, end) for name, start, end in self.calls if name == what]
        return min(start for start, _ in own), max(end for _, end in own)


def trained(out: Path, *overrides: str) -> tuple[Door, Door]:
    """Tasks of a split begin with its name: `Val ticket 3 …`."""
    target, optimizer = Door("sim:world", 0.02), Door("sim:world?duds=0.2", 0.06)
    basics = [f"env.output_root={out}", "env.options={rules: 12, train: 24, val: 12, test: 12}", "train.batch_size=12"]
    config = Config.load(SIM, [*basics, "train.num_epochs=2", "hardware.workers=6", *overrides])
    asyncio.run(TrainingLoop(config, models={"target": target, "optimizer": optimizer}).fit())
    return target, optimizer


def test_the_initial_validation_runs_beside_the_first_rollout_and_reflection(tmp_path: Path) -> None:
    target, optimizer = trained(tmp_path)
    first_reflection = optimizer.span("reflect")[0]
    baseline = [end for name, _, end in target.calls if name == "val"][:12]
    assert target.calls[0][0] == "train", "rollouts, which reflection waits for, come first"
    assert max(baseline) > first_reflection


def test_notes_are_made_beside_the_next_rollouts_and_the_slow_update(tmp_path: Path) -> None:
    target, optimizer = trained(tmp_path, "train.num_epochs=3", "optimizer.learning_rate=1.6")
    notes = [(start, end) for name, start, end in optimizer.calls if name == "meta_skill"]
    assert len(notes) == 3
    first, *later = notes
    assert any(first[0] < begun < first[1] for name, begun, _ in target.calls if name == "train")
    guidance = [(start, end) for name, start, end in optimizer.calls if name == "slow_update"]
    assert len(guidance) == len(later) == 2
    for asked, note in zip(guidance, later, strict=True):
        assert asked[0] < note[1]
        assert note[0] < asked[1]


def test_the_figures_at_the_end_are_measured_together(tmp_path: Path) -> None:
    target, _ = trained(tmp_path, "hardware.workers=64")
    tests = [(start, end) for name, start, end in target.calls if name == "test"]
    assert len(tests) == 36
    assert max(start for start, _ in tests) < min(end for _, end in tests)


def test_a_minibatch_is_read_before_the_last_rollout_is_done(tmp_path: Path) -> None:
    target, optimizer = trained(tmp_path, "hardware.workers=1", "gradient.minibatch_size=2", "train.num_epochs=1")
    batch = [end for name, _, end in target.calls if name == "train"][:12]
    assert optimizer.span("reflect")[0] < batch[-1]


def test_the_next_rollouts_begin_once_the_gate_is_certain_and_cost_no_call_more(tmp_path: Path) -> None:
    def overlap(out: Path, vetoes: list[Veto]) -> tuple[int, int]:
        target, optimizer = Door("sim:world", 0.02), Door("sim:world?duds=0.2", 0.06)
        options = ["env.options={rules: 12, train: 36, val: 20, test: 12}", "train.num_epochs=1", "hardware.workers=6"]
        config = Config.load(SIM, [f"env.output_root={out}", *options])
        parts = resolve(config, vetoes=vetoes)
        asyncio.run(TrainingLoop(config, models={"target": target, "optimizer": optimizer}, parts=parts).fit())
        gates = [(start, end) for name, start, end in target.calls if name == "val"][20:]
        rolled = [(start, end) for name, start, end in target.calls if name == "train"]
        return sum(any(a < end and start < b for start, end in gates) for a, b in rolled), len(target.calls)

    begun, calls = overlap(tmp_path / "certain", [])
    assert begun > 0, "the gate's last items leave places free"
    never_sure = overlap(tmp_path / "vetoes", [lambda before, after: True])
    assert never_sure == (0, calls), "a veto of the user comes last: before that, nothing is certain"


def test_who_can_wait_goes_after_all_who_cannot() -> None:
    async def whole() -> list[str]:
        slots, order = Slots(1), []

        async def visit(name: str, later: bool) -> None:
            await slots.enter(low_priority=later)
            order.append(name)
            await asyncio.sleep(0)
            slots.leave()

        names = [("first", False), ("later 1", True), ("now 1", False), ("later 2", True), ("now 2", False)]
        await asyncio.gather(*(visit(name, later) for name, later in names))
        return order

    assert asyncio.run(whole()) == ["first", "now 1", "now 2", "later 1", "later 2"]


def test_a_place_given_to_one_who_has_left_goes_to_the_next() -> None:
    async def whole() -> bool:
        slots = Slots(1)
        await slots.enter(low_priority=False)
        gone = asyncio.create_task(slots.enter(low_priority=False))
        waiting = asyncio.create_task(slots.enter(low_priority=True))
        await asyncio.sleep(0)
        gone.cancel()
        slots.leave()
        await asyncio.wait_for(waiting, 1)
        return gone.cancelled()

    assert asyncio.run(whole())
