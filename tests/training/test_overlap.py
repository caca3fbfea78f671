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


def test_the_figures_at_the_end_are_measured_together(tmp_path: Path) -> None:
    target, _ = trained(tmp_path, "hardware.workers=64")
    tests = [(start, end) for name, start, end in target.calls if name == "test"]
    assert len(tests) == 36
    assert max(start for start, _ in tests) < min(end for _, end in tests)


def test_a_place_given_to_one_who_has_left_goes_to_the_next() -> None:
    async def whole() -> bool:
        slots = Slots(1)
        await slots.enter()
        gone = asyncio.create_task(slots.enter())
        waiting = asyncio.create_task(slots.enter())
        await asyncio.sleep(0)
        gone.cancel()
        slots.leave()
        await asyncio.wait_for(waiting, 1)
        return gone.cancelled()

    assert asyncio.run(whole())
