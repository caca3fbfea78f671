"""(c) Measure CPU and memory per rollout as a run grows: at 1,000, 10,000 and 50,000 rollouts of one training.

    python bench/growth.py              # 50,000 rollouts
    python bench/growth.py 10000        # a shorter run

The simulated models run in this process. Their replies never improve the skill, so every step does the same work. Every
reply is a fresh sample and is journalled. The speed of a shared machine changes over minutes, so short and long runs
are measured in turns: rollouts 1,000 to 2,000 of a new run, then 1,000 more rollouts of the long run, which is resumed
for them. CPU is the time of this process.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.record.costs import rollouts_paid
from skillopt.record.events import Event
from skillopt.training.trainer import TrainingLoop

BATCH = 40
MARKS = (1_000, 5_000, 10_000, 50_000)


class Meter:
    """Records after every step: the rollouts so far, the CPU seconds, and the megabytes in memory."""

    def __init__(self) -> None:
        self.trainer: TrainingLoop | None = None
        self.points: list[tuple[int, float, float]] = []

    def __call__(self, event: Event) -> None:
        if event.kind == "step_finished" and self.trainer:
            rollouts = rollouts_paid(self.trainer.session.journal.totals())
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.points.append((rollouts, time.process_time(), pages * 4096 / 2**20))

    def cpu_ms(self, low: int, high: int) -> float:
        """Return the milliseconds of CPU per rollout, between rollout `low` and rollout `high`."""
        first, last = self.near(low), self.near(high)
        return 1000 * (last[1] - first[1]) / (last[0] - first[0])

    def near(self, rollouts: int) -> tuple[int, float, float]:
        return min(self.points, key=lambda point: abs(point[0] - rollouts))


def trained(folder: Path, rollouts: int) -> Meter:
    """Train the run in this folder until it has paid for that many rollouts; return what was measured."""
    overrides = [
        f"env.output_root={folder}",
        "train.num_epochs=1000",
        f"train.batch_size={BATCH}",
        "env.options={rules: 20, train: 400, val: 40, test: 40}",
        "models.optimizer_model=sim:world?duds=1",
        "models.target_deterministic=false",
        f"budget.max_calls={rollouts}",
        "hardware.workers=16",
    ]
    meter = Meter()
    meter.trainer = TrainingLoop(Config.load("configs/sim/default.yaml", overrides), listeners=[meter])
    try:
        asyncio.run(meter.trainer.fit())
    except Stopped as error:
        if "max_calls" not in str(error):
            raise
    return meter


def main(most: int = 50_000, turns: int = 5) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        long = trained(Path(out) / "long", most)
        sizes = {path.name: path.stat().st_size for path in Path(out).glob("*/*/*/*") if path.is_file()}
        early, late = [], []
        for turn in range(turns):
            early.append(trained(Path(out) / str(turn), 2_000).cpu_ms(1_000, 2_000))
            reached = most + turn * 1_200
            late.append(trained(Path(out) / "long", reached + 1_200).cpu_ms(reached + 100, reached + 1_100))
    marks = [mark for mark in MARKS if mark <= most]
    return {
        "marks": [
            {"rollouts": mark, "cpu_ms": long.cpu_ms(mark - 1_000, mark), "mb": long.near(mark)[2]} for mark in marks
        ],
        "cpu_ms": {"1000": early, str(most): late},
        "cpu_ratio": statistics.median(late) / statistics.median(early),
        "memory_ratio": long.near(most)[2] / long.near(5_000)[2],
        "bytes_a_rollout": {name: size / most for name, size in sorted(sizes.items())},
        "points": long.points[:: max(1, len(long.points) // 200)],
    }


if __name__ == "__main__":
    found = main(*(int(number) for number in sys.argv[1:2]))
    print({key: value for key, value in found.items() if key != "points"})
