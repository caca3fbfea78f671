"""(c) What a rollout costs as a run grows: CPU and memory at 1,000, 10,000 and 50,000 rollouts of one training.

    python bench/growth.py              # 50,000 rollouts
    python bench/growth.py 10000        # a shorter run

The simulated models run in this process and their replies never improve the skill, so that every step does the same
work; every reply is a fresh sample, journalled like any other. CPU is this process's own time, which other work on the
machine does not change much.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.loop.trainer import Trainer
from skillopt.run.events import Event
from skillopt.run.summary import rollouts_paid

BATCH = 40
MARKS = (1_000, 5_000, 10_000, 50_000)


class Meter:
    """After every step: rollouts so far, CPU seconds, megabytes in memory."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.points: list[tuple[int, float, float]] = []

    def __call__(self, event: Event) -> None:
        if event.kind == "step_finished" and self.trainer:
            rollouts = rollouts_paid(self.trainer.session.journal.totals())
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.points.append((rollouts, time.process_time(), pages * 4096 / 2**20))

    def at(self, mark: int) -> dict[str, float]:
        """CPU of a rollout over the thousand around the mark, and the memory there."""
        last = self.points[-1][0]
        low, high = (self._near(min(n, last)) for n in (max(0, min(mark, last - 500) - 500), mark + 500))
        milliseconds = 1000 * (high[1] - low[1]) / (high[0] - low[0])
        return {"rollouts": mark, "cpu_ms": milliseconds, "mb": self._near(mark)[2]}

    def _near(self, rollouts: int) -> tuple[int, float, float]:
        return min(self.points, key=lambda point: abs(point[0] - rollouts))


def main(most: int = 50_000) -> dict[str, Any]:
    meter = Meter()
    with tempfile.TemporaryDirectory() as out:
        epochs = 1 + most // 700
        overrides = [
            f"env.output_root={out}",
            f"train.num_epochs={epochs}",
            f"train.batch_size={BATCH}",
            "env.options={rules: 20, train: 400, val: 40, test: 40}",
            "models.optimizer_model=sim:world?duds=1",
            "models.target_deterministic=false",
            f"budget.target.max_calls={most}",
            "hardware.workers=16",
        ]
        config = Config.load("configs/sim/default.yaml", overrides)
        meter.trainer = Trainer(config, listeners=[meter])
        try:
            asyncio.run(meter.trainer.fit())
        except Exception as error:
            if "max_calls" not in str(error):
                raise
        sizes = {path.name: path.stat().st_size for path in Path(out).glob("*/*/*") if path.is_file()}
    marks = [meter.at(mark) for mark in MARKS if mark <= most]
    first, last = marks[0], marks[-1]
    early = next((row for row in marks if row["rollouts"] == 5_000), first)
    return {
        "marks": marks,
        "cpu_ratio": last["cpu_ms"] / first["cpu_ms"],
        "memory_ratio": last["mb"] / early["mb"],
        "bytes_a_rollout": {name: size / most for name, size in sorted(sizes.items())},
        "points": meter.points[:: max(1, len(meter.points) // 200)],
    }


if __name__ == "__main__":
    found = main(*(int(number) for number in sys.argv[1:2]))
    print({key: value for key, value in found.items() if key != "points"})
