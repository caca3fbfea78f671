"""A small list of tasks for the Python API, which a simulated target can learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skillopt.sim.model import TOPICS, code_for

TASKS = [
    {"question": f"Case {n}. Give the codes for: {TOPICS[n % 6]}.", "answer": code_for(TOPICS[n % 6], 0)}
    for n in range(48)
]
SIMULATED: dict[str, Any] = {
    "target_model": "sim:world",
    "optimizer_model": "sim:world",
    "batch_size": 12,
    "analysts": ["llm"],  # the simulated target learns from rules alone
}
SPLITS = {"train": TASKS[:24], "val": TASKS[24:36], "test": TASKS[36:]}


def small(out: Path, **more: Any) -> dict[str, Any]:
    return {"tasks": SPLITS, **SIMULATED, "num_epochs": 1, "output_root": str(out), **more}
