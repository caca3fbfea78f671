"""How few target rollouts it takes to learn 24 hidden rules.

    python bench/rulebook.py            # the tables of bench/LEADERBOARD.md

A rollout is one task done by the target: the initial validation, batches and gates together. `rollouts_to_best` of a
run's summary.json counts those paid when the best validation score was reached.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.loop.trainer import TrainingLoop

CONFIGS = Path(__file__).parent.parent / "configs" / "sim"
SEEDS = (1, 2, 3, 4, 5)


def summary(config: str, *overrides: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        loaded = Config.load(CONFIGS / config, [f"env.output_root={out}", *overrides])
        return asyncio.run(TrainingLoop(loaded).fit()).summary


def rulebook() -> None:
    print("| optimizer's useless edits | seed | best val | rollouts to best | optimizer calls |")
    print("|---|---|---|---|---|")
    for duds in ("0", "0.2", "0.35"):
        for seed in SEEDS:
            model = f"models.optimizer_model=sim:world?duds={duds}"
            run = summary("rulebook.yaml", f"train.seed={seed}", model, "train.num_epochs=4")
            calls = run["calls"]["optimizer"]
            print(f"| {float(duds):.0%} | {seed} | {run['best']['val']:.3f} | {run['rollouts_to_best']} | {calls} |")


if __name__ == "__main__":
    rulebook()
