"""Test a long run with faults: 20,000 rollouts in one process, with `skillopt sim serve` as the server in another.

    python bench/soak.py [rollouts]

Runs the same training twice: without faults, and with each fault on 1 % of the calls (429, 500, reset, hang, malformed
and cut-off answers). Both must end with the same scores, edits and skill, and memory, open files and connections must
not grow. Prints the figures. The exit code is 1 if a figure is out of its bounds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from weather import served, stats

from skillopt.config import Config
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl
from skillopt.record.journal import Journal
from skillopt.training.trainer import TrainingLoop

SHARE = 0.01
FAULTS = ("rate_limit", "server_error", "reset", "hang", "garbled", "torn")
"""The faults: 429, 500, a cut connection, no answer, an answer that is not a chat completion, half an answer."""
WORKERS = 64
STEPS = 16
GROWTH_MB = 8
"""The most MB by which memory may grow from the second quarter of the run to the last."""


@dataclass
class Watch:
    """Records this process's memory and open files four times per second, in a separate thread."""

    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    sockets: list[int] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        while not self._over.wait(0.25):
            self.memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * page)
            kinds = open_files()
            self.files.append(len(kinds))
            self.sockets.append(sum(kind.startswith("socket:") for kind in kinds))

    def quarter(self, values: list[float], number: int) -> float:
        size = max(1, len(values) // 4)
        return median(values[size * (number - 1) : size * number] or values)


def open_files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class Measured:
    run: RunDirectory
    seconds: float
    rollouts: int
    requests: int
    retries: int
    watch: Watch
    left_open: int
    """The number of files that are open after the run and were not open before."""


def train(out: Path, rollouts: int, *weather: str) -> Measured:
    size = rollouts // (2 * STEPS)
    options = f"env.options={{rules: 50, train: {size * STEPS // 2}, val: {size}, test: {size // 2}}}"
    with served("duds=0.3", "retry_after=0.05", *weather) as url:
        config = Config.load(
            "configs/sim/default.yaml",
            [
                options, f"env.output_root={out}", "train.num_epochs=2", f"train.batch_size={size}",
                "models.target_model=vllm:sim", "models.optimizer_model=vllm:sim", f"hardware.vllm_url={url}",
                "models.target_deterministic=true", "models.optimizer_deterministic=true",
                f"hardware.workers={WORKERS}", "hardware.call_timeout=3", "hardware.max_retries=10",
                "optimizer.learning_rate=2", f"optimizer.slow_update_samples={size // 4}",
            ],
        )  # fmt: skip
        before, started = len(open_files()), time.monotonic()
        with Watch() as watch:
            result = asyncio.run(TrainingLoop(config).fit())
        seconds = time.monotonic() - started
        left_open, requests = len(open_files()) - before, stats(url)["requests"]
    run = RunDirectory(result.path)
    with Journal(run.journal) as journal:
        totals = journal.totals()
    replies = sum(total.calls for total in totals)
    return Measured(
        run=run,
        seconds=seconds,
        rollouts=sum(total.first_turns for total in totals if total.role == "target"),
        requests=requests,
        retries=requests - replies,
        watch=watch,
        left_open=left_open,
    )


def outcome(run: RunDirectory) -> dict[str, str]:
    """Return a hash of everything that a fault could have changed: trajectories, scores, verdicts, edits and skills."""
    found: dict[str, Any] = {
        "best skill": run.best_skill.read_text(),
        "patch log": [{k: v for k, v in row.items() if k != "telemetry"} for row in read_jsonl(run.patch_log.path)],
        "verdicts": [
            [r["step"], r["verdict"], r["train_score"], r["val_before"], r["val_after"]] for r in read_json(run.history)
        ],
    }
    for pattern in ("steps/*/*trajectories.jsonl", "slow_update/*/trajectories.jsonl", "evaluations/*.json"):
        found[pattern] = {str(path.relative_to(run.root)): scores(path) for path in sorted(run.root.glob(pattern))}
    return {name: hashlib.sha256(json.dumps(value).encode()).hexdigest() for name, value in found.items()}


def scores(path: Path) -> Any:
    """Return a file's scores by item. A failed rollout has an error instead of a score."""
    if path.suffix == ".jsonl":
        return [[row["id"], row["item_id"], row.get("score"), row.get("error")] for row in read_jsonl(path)]
    return {key: value for key, value in read_json(path).items() if key != "telemetry"}


def main(arguments: list[str]) -> int:
    rollouts = int(arguments[0]) if arguments else 20_000
    with tempfile.TemporaryDirectory() as folder:
        clean = train(Path(folder) / "clean", rollouts)
        rough = train(Path(folder) / "rough", rollouts, *(f"{fault}={SHARE}" for fault in FAULTS))
        a, b = outcome(clean.run), outcome(rough.run)
    watch = rough.watch
    early, late = watch.quarter(watch.memory, 2), watch.quarter(watch.memory, 4)
    differing = sorted(name for name in a if a[name] != b[name])
    print(f"{rough.rollouts:,} rollouts in {rough.seconds:.0f} s ({clean.seconds:.0f} s without faults)")
    print(f"{SHARE:.0%} of each: {', '.join(FAULTS)}")
    print(f"{rough.requests:,} requests, {rough.retries:,} of them again after a fault")
    print(f"memory: {early:.1f} MB in the second quarter, {late:.1f} in the last, {max(watch.memory):.1f} at most")
    print(f"open files: {max(watch.files)} at most, {max(watch.sockets)} of them sockets; {rough.left_open} left open")
    print(f"what a fault touched: {', '.join(differing) or 'nothing'}")
    kept = {
        "rollouts": rough.rollouts >= rollouts,
        "faults met": rough.retries > rollouts * SHARE * 4,
        "memory": late - early <= GROWTH_MB,
        "open files": max(watch.sockets) <= 2 * WORKERS + 32 and rough.left_open <= 0,
        "scores": not differing,
    }
    failed = [name for name, good in kept.items() if not good]
    print(f"Failed: {', '.join(failed)}" if failed else "All bounds kept.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
