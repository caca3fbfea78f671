"""The same training under several seeds: does it improve every time, and by how much?"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from skillopt.config import BudgetConfig, Config
from skillopt.errors import Stopped
from skillopt.run.directory import safe_name
from skillopt.run.files import write_json
from skillopt.run.result import Result
from skillopt.run.summary import ROLES
from skillopt.statistics import seeds_interval

Train = Callable[[Config], Awaitable[Result]]


async def replicate(config: Config, seeds: Sequence[int], train: Train) -> dict[str, Any]:
    """Train under each seed, one after another; finished seeds are not run again. Also written to `replicate.json`.

    The budget of the config is the budget of all seeds together. Nothing is chosen by the test split.
    """
    started = time.monotonic()
    summaries: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    path = _folder(config, seeds) / "replicate.json"
    for seed in seeds:
        left = left_of(config.budget, summaries, (time.monotonic() - started) / 60)
        own = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed}), "budget": left})
        result = await train(own)
        summaries.append(result.summary)
        rows.append(_row(seed, result))
        write_json(path, {"seeds": list(seeds), **report(rows)})
    return {"seeds": list(seeds), **report(rows), "path": str(path)}


def _row(seed: int, result: Result) -> dict[str, Any]:
    initial, best = result.summary["initial"], result.summary["best"]
    again = best["val_remeasured"]
    return {
        "seed": seed,
        "run": str(result.path),
        "initial_val": initial["val"],
        "best_val": best["val"] if again is None else again,
        "initial_test": initial["test"],
        "best_test": best["test"],
        "accepted": result.summary["steps"]["accepted"],
        "target_calls": result.summary["calls"]["target"],
    }


def report(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The seeds' table, means with 95 % intervals (Student's t), the share that improved, the best by validation."""
    gains = {split: [row[f"best_{split}"] - row[f"initial_{split}"] for row in rows] for split in ("val", "test")}
    columns = {name: [row[name] for row in rows] for name in ("initial_val", "best_val", "initial_test", "best_test")}
    columns |= {f"gain_{split}": values for split, values in gains.items()}
    return {
        "rows": list(rows),
        "mean": {name: fmean(values) for name, values in columns.items()},
        "interval": {name: _possible(seeds_interval(values), name) for name, values in columns.items()},
        "improved": {split: sum(gain > 0 for gain in values) / len(rows) for split, values in gains.items()},
        "best_seed_by_validation": max(rows, key=lambda row: (row["best_val"], -row["seed"]))["seed"],
    }


def left_of(budget: BudgetConfig, spent: Sequence[dict[str, Any]], minutes: float) -> BudgetConfig:
    """What earlier runs, by their summaries, have left of the budget that all share."""
    used = {
        "max_calls": sum(s["calls"][role] for s in spent for role in ROLES),
        "max_tokens": sum(
            s["tokens"][role][kind] for s in spent for role in ROLES for kind in ("prompt", "completion")
        ),
        "max_usd": sum(s["cost_usd"][role] or 0.0 for s in spent for role in ROLES),
        "max_minutes": minutes,
    }
    lower = {}
    for name, amount in used.items():
        limit = getattr(budget, name)
        if limit is not None and limit <= amount:
            raise Stopped(f"budget.{name}: the runs so far have used up all of {limit:g}; raise it to continue")
        lower[name] = None if limit is None else limit - amount
    return budget.model_copy(update=lower)


def _folder(config: Config, seeds: Sequence[int]) -> Path:
    identity = {"config": {**config.identity(), "train.seed": None}, "seeds": list(seeds)}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
    name = safe_name(config.env.benchmark or config.env.name)
    return Path(config.env.output_root) / "replicates" / name / digest[:8]


def _possible(interval: tuple[float, float] | None, name: str) -> tuple[float, float] | None:
    """Student's t does not know that no score is below 0 or above 1."""
    if interval is None:
        return None
    low = -1.0 if "gain" in name else 0.0
    return max(low, interval[0]), min(1.0, interval[1])
