"""(e) Ray with one and two workers on an env that needs the CPU: TextWorld where it is installed.

    python bench/cluster.py

One evaluation of a fixed policy, locally and on clusters of one and two CPUs on this machine; the same scores are
required of all three. Starting Ray is not counted. Without TextWorld a stand-in burns about as much CPU a turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.envs import BUILT_IN
from skillopt.envs.base import Chat, Episode, Item
from skillopt.envs.sim import SimEnv
from skillopt.loop.trainer import Trainer
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Event
from skillopt.skill import Skill

TURNS = 4
ROUNDS = 60_000
"""Hashes a turn in the stand-in: about 50 ms on one core."""


class BusyEnv(SimEnv):
    """The simulated world behind a task that computes between its calls, as a game engine does."""

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        for _ in range(TURNS):
            digest = item.id.encode()
            for _ in range(ROUNDS):
                digest = hashlib.sha256(digest).digest()
        return await super().run(item, skill, chat)


def overrides(out: Path) -> tuple[str, list[str]]:
    """The env to use, and the config for it."""
    shared = [f"env.output_root={out}", "train.num_epochs=1", "hardware.workers=8", "evaluation.baselines=false"]
    if "textworld" in BUILT_IN and importlib.util.find_spec("textworld"):
        return "TextWorld", [*shared, "env.name=textworld", "train.batch_size=16"]
    here = f"env.name={Path(__file__).resolve()}:BusyEnv"
    return "stand-in", [*shared, here, "env.options={rules: 12, train: 32, val: 16, test: 16}", "train.batch_size=16"]


def timed(out: Path, *more: str) -> tuple[float, Any]:
    _, own = overrides(out)
    config = Config.load("configs/sim/default.yaml", [*own, *more])
    started: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "run_started":  # the workers are there
            started.append(time.monotonic())

    result = asyncio.run(Trainer(config, listeners=[listen]).fit())
    run = RunDirectory(result.path)
    history = [{k: v for k, v in row.items() if k != "telemetry"} for row in json.loads(run.history.read_text())]
    return time.monotonic() - started[0], (json.dumps(history, sort_keys=True), result.best_skill.text)


def on_ray(out: Path, cpus: int) -> tuple[float, Any]:
    import ray

    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    try:
        return timed(out, "hardware.executor=ray")
    finally:
        ray.shutdown()


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        here, expected = timed(out / "local")
        one, first = on_ray(out / "one", 1)
        two, second = on_ray(out / "two", 2)
        name, _ = overrides(out)
    return {
        "env": name,
        "local_seconds": here,
        "seconds": [one, two],
        "gain": one / two,
        "same": first == second == expected,
    }


if __name__ == "__main__":
    print(main())
