"""The same training under several seeds: does it improve every time, and by how much?"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from skillopt.config import BudgetConfig, Config
from skillopt.errors import Stopped
from skillopt.measure.course import gains_of
from skillopt.measure.session import folder_of
from skillopt.measure.verdict import Gain, Spent, Verdict, say, spent_in, too_few
from skillopt.run.directory import RunDirectory
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
    found: dict[str, Any] = {}
    identity = {"config": {**config.identity(), "train.seed": None}, "seeds": list(seeds)}
    path = folder_of(config, "replicates", identity) / "replicate.json"
    for seed in seeds:
        left = left_of(config.budget, summaries, (time.monotonic() - started) / 60)
        own = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed}), "budget": left})
        result = await train(own)
        summaries.append(result.summary)
        rows.append(_row(seed, result))
        report_so_far = {"seeds": list(seeds), **report(rows)}
        verdict = replicate_verdict(report_so_far, spent_in(summaries))
        found = {"verdict": verdict.text, "outcome": verdict.word, **report_so_far}
        write_json(path, found)
    return found | {"path": str(path)}


def _row(seed: int, result: Result) -> dict[str, Any]:
    initial, best = result.summary["initial"], result.summary["best"]
    again = best["val_remeasured"]
    gains = gains_of(RunDirectory(result.path), result.summary)
    return {
        "seed": seed,
        "run": str(result.path),
        "initial_val": initial["val"],
        "best_val": best["val"] if again is None else again,
        "initial_test": initial["test"],
        "best_test": best["test"],
        "tasks": {split: gain.tasks for split, gain in gains.items()},
        "interval": {
            "initial_val": initial["val_interval"],
            "best_val": best["val_interval"] if again is None else best["val_remeasured_interval"],
            "initial_test": initial["test_interval"],
            "best_test": best["test_interval"],
            **{f"gain_{split}": gain.interval for split, gain in gains.items()},
        },
        "accepted": result.summary["steps"]["accepted"],
        "target_calls": result.summary["calls"]["target"],
    }


def report(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The seeds' table, means with 95 % intervals, the share that improved, the best by validation.

    An interval has two parts: the seeds differ (Student's t), and all of them were measured on the same few tasks.
    """
    gains = {split: [row[f"best_{split}"] - row[f"initial_{split}"] for row in rows] for split in ("val", "test")}
    columns = {name: [row[name] for row in rows] for name in ("initial_val", "best_val", "initial_test", "best_test")}
    columns |= {f"gain_{split}": values for split, values in gains.items()}
    return {
        "rows": list(rows),
        "mean": {name: fmean(values) for name, values in columns.items()},
        "interval": {name: _interval(name, values, rows) for name, values in columns.items()},
        "improved": {split: sum(gain > 0 for gain in values) / len(rows) for split, values in gains.items()},
        "best_seed_by_validation": max(rows, key=lambda row: (row["best_val"], -row["seed"]))["seed"],
    }


def _interval(name: str, values: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Seeds that agree say nothing of other tasks: the interval is never narrower than that of a single run."""
    mean, over_seeds = fmean(values), seeds_interval(values)
    half = over_seeds[1] - mean if over_seeds else 0.0
    own = [row.get("interval", {}).get(name) for row in rows]
    if None in own:  # a run of an earlier version that kept no scores of items
        return over_seeds and _possible(over_seeds, name)
    below, above = (fmean(abs(bounds[side] - v) for bounds, v in zip(own, values, strict=True)) for side in (0, 1))
    return _possible((mean - math.hypot(half, below), mean + math.hypot(half, above)), name)


def replicate_verdict(found: Mapping[str, Any], spent: Spent) -> Verdict:
    """Over all seeds, on the held-out tasks."""
    rows, mean = found["rows"], found["mean"]
    gain = Gain(
        before=mean["initial_test"],
        after=mean["best_test"],
        tasks=max(row["tasks"].get("test", 0) for row in rows),
        interval=found["interval"]["gain_test"],
    )
    seeds = len(rows)
    improved = round(found["improved"]["test"] * seeds)
    figures = f"{gain}, the mean of {seeds} seed{'' if seeds == 1 else 's'}, of which {improved} improved"
    if gain.word == "cannot tell":
        return say("cannot tell", figures, because=too_few(gain), advice="more held-out tasks or seeds", spent=spent)
    return say(gain.word, figures, spent=spent)


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


def _possible(interval: tuple[float, float], name: str) -> tuple[float, float]:
    """Student's t does not know that no score is below 0 or above 1."""
    low = -1.0 if "gain" in name else 0.0
    return max(low, interval[0]), min(1.0, interval[1])
