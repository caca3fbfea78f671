"""(a) Measure whole trainings with a loopback server of fixed latency: seconds, calls, ratio to the least time.

    python bench/loopback.py small      # 24/12/12 items: the figures, and every call with its times
    python bench/loopback.py large      # 80/40/40 items

The empty skill is not measured (evaluation.baselines=false), since the rival does not measure it either.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from typing import Any

from recorder import critical_path, recorded
from weather import served

from skillopt.config import Config
from skillopt.training.trainer import TrainingLoop


@dataclass(frozen=True, kw_only=True)
class Shape:
    items: tuple[int, int, int]
    batch: int
    workers: int
    target: float
    optimizer: float
    rules: int
    seconds: float
    """The run must take less than this many seconds."""
    rival: tuple[float, int]
    """Seconds and calls of microsoft/SkillOpt 0.2.0 for the same items and latencies, measured on two cores."""


SHAPES = {
    "small": Shape(
        items=(24, 12, 12), batch=12, workers=8, target=0.3, optimizer=1.0, rules=20, seconds=14, rival=(30.0, 198)
    ),
    "large": Shape(
        items=(80, 40, 40), batch=40, workers=24, target=0.5, optimizer=2.0, rules=20, seconds=25, rival=(57.4, 598)
    ),
}


def run(shape: Shape, *overrides: str) -> dict[str, Any]:
    train, val, test = shape.items
    basics = [
        f"env.options={{rules: {shape.rules}, train: {train}, val: {val}, test: {test}}}",
        "train.num_epochs=2",
        f"train.batch_size={shape.batch}",
        f"hardware.workers={shape.workers}",
        f"optimizer.slow_update_samples={min(20, train // 2)}",
        "models.target_model=vllm:sim",
        "models.optimizer_model=vllm:sim",
        "models.target_deterministic=true",
        "evaluation.baselines=false",
    ]
    latencies = (f"latency={shape.target}", f"optimizer_latency={shape.optimizer}", "duds=0.2")
    with tempfile.TemporaryDirectory() as out, served(*latencies) as url, recorded() as recorder:
        places = [f"env.output_root={out}", f"hardware.vllm_url={url}"]
        config = Config.load("configs/sim/default.yaml", [*basics, *places, *overrides])
        warm_up(url)
        started = time.monotonic()
        recorder.started = started
        summary = asyncio.run(TrainingLoop(config).fit()).summary
        seconds = time.monotonic() - started
    workers = config.hardware.workers
    least = critical_path(recorder.calls, workers=workers, target=shape.target, optimizer=shape.optimizer)
    return {
        "seconds": seconds,
        "critical_path": least,
        "ratio": seconds / least,
        "calls": len(recorder.calls),
        "steps": summary["steps"],
        "by_stage": dict(Counter(call.stage for call in recorder.calls)),
        "concurrency": recorder.concurrency(seconds),
        "one_or_none_in_flight": recorder.seconds_with(1, seconds),
        "val": [summary["initial"]["val"], summary["best"]["val"]],
        "test": [summary["initial"]["test"], summary["best"]["test"]],
        "workers": workers,
        "timeline": [
            (round(c.start - started, 3), round(c.end - started, 3), c.role, c.stage, c.label) for c in recorder.calls
        ],
    }


def warm_up(url: str) -> None:
    """Send one request before the measurement, since a server's first reply takes longer."""
    body = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body, headers)).read()


def main(names: list[str]) -> None:
    for name in names or list(SHAPES):
        shape = SHAPES[name]
        found = run(shape)
        print({k: v for k, v in found.items() if k != "timeline"})
        for row in sorted(found["timeline"]):
            print(*row)


if __name__ == "__main__":
    main(sys.argv[1:])
