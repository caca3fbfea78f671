"""Measure how many target rollouts it takes to learn 24 hidden rules.

    python bench/rulebook.py            # the first tables of bench/LEADERBOARD.md

A rollout is one task done by the target, in the initial validation, a batch, a race or a gate. In a run's summary.json,
`rollouts_to_best` is the number of rollouts paid until the best validation score was reached.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.training.trainer import TrainingLoop

CONFIGS = Path(__file__).parent.parent / "configs" / "sim"
SEEDS = (1, 2, 3, 4, 5)


def summary(config: str, *overrides: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        loaded = Config.load(CONFIGS / config, [f"env.output_root={out}", *overrides])
        return asyncio.run(TrainingLoop(loaded).fit()).summary


def rulebook() -> None:
    """Print the table for four optimizers: without faults, with every rule in three wordings, with useless edits."""
    print("| optimizer | best val, seeds 1–5 | rollouts to best | optimizer calls |")
    print("|---|---|---|---|")
    for options in ("", "?paraphrase=1", "?duds=0.2", "?duds=0.35"):
        model = f"sim:world{options}"
        runs = [
            summary("rulebook.yaml", f"train.seed={seed}", f"models.optimizer_model={model}", "train.num_epochs=4")
            for seed in SEEDS
        ]
        val = ", ".join(f"{run['best']['val']:.2f}" for run in runs)
        rollouts = ", ".join(str(run["rollouts_to_best"]) for run in runs)
        calls = ", ".join(str(run["calls"]["optimizer"]) for run in runs)
        print(f"| `{model}` | {val} | {rollouts} | {calls} |")


if __name__ == "__main__":
    rulebook()
