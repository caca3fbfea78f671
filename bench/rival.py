"""(d) Compare with gepa in the simulated world: rollouts and seconds until the validation score is 1.0, five seeds.

    python bench/rival.py

The world has 24 hidden rules, 48 training and 48 validation tasks. A loopback server takes 0.1 s for a target call; a
reflection takes 0.3 s for both methods. The first run installs gepa from the package index into bench/.venv-gepa.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loopback import warm_up
from weather import served

from skillopt.config import Config
from skillopt.record.events import Event
from skillopt.tasks import open_env
from skillopt.training.trainer import TrainingLoop

HERE = Path(__file__).parent
SEEDS = (1, 2, 3, 4, 5)
CONFIG = HERE.parent / "configs" / "sim" / "rulebook.yaml"


def gepa_python() -> Path:
    """Return the Python of gepa's venv, which is made on first use. SKILLOPT_GEPA_VENV names another folder for it."""
    venv = Path(os.environ.get("SKILLOPT_GEPA_VENV", HERE / ".venv-gepa"))
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "gepa==0.1.4"], check=True, timeout=600)
    return python


def ours(url: str, out: str, seed: int) -> dict[str, Any]:
    reached: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "gate_decided" and event["after"] == 1.0 and not reached:
            reached.append(time.monotonic())

    overrides = [f"env.output_root={out}", f"train.seed={seed}", f"hardware.vllm_url={url}", "hardware.workers=8"]
    overrides += ["models.target_model=vllm:sim", "models.optimizer_model=vllm:sim"]
    config = Config.load(CONFIG, [*overrides, "models.target_deterministic=true", "evaluation.baselines=false"])
    started = time.monotonic()
    summary = asyncio.run(TrainingLoop(config, listeners=[listen]).fit()).summary
    seconds = reached[0] - started if reached else time.monotonic() - started
    return {"seed": seed, "rollouts": summary["rollouts_to_best"], "seconds": seconds, "val": summary["best"]["val"]}


def main() -> dict[str, Any]:
    python = gepa_python()
    env = open_env(Config.load(CONFIG))
    data = {
        split: [{"id": item.id, "question": item.question, "answer": item.answers[0]} for item in env.items(split)]
        for split in ("train", "val")
    }
    rows: dict[str, list[dict[str, Any]]] = {"ours": [], "gepa": []}
    with tempfile.TemporaryDirectory() as out, served("latency=0.1", "optimizer_latency=0.3") as url:
        warm_up(url)
        items = Path(out) / "items.json"
        items.write_text(json.dumps(data))
        for seed in SEEDS:
            rows["ours"].append(ours(url, out, seed))
            command = [str(python), str(HERE / "gepa_run.py"), url, str(items), str(seed)]
            told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
            rows["gepa"].append(json.loads(told.stdout.strip().splitlines()[-1]))
    return rows


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
