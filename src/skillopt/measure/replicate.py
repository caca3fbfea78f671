"""Repeats a training with several seeds, to show how often and by how much it improves the skill."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import fmean

from skillopt.config import BudgetConfig, Config
from skillopt.errors import Stopped, UserError
from skillopt.measure.session import folder_of, written
from skillopt.measure.verdict import Sentence, figures, say, spent_in, too_few
from skillopt.record.base import Interval
from skillopt.record.costs import Bill
from skillopt.record.result import Result
from skillopt.record.results import ReplicatedRun, Replication, Spent
from skillopt.record.summary import Gain, Summary
from skillopt.statistics import seeds_interval

COLUMNS = ("initial_val", "best_val", "initial_test", "best_test", "gain_val", "gain_test")
Train = Callable[[Config], Awaitable[Result]]


async def replicate(config: Config, seeds: Sequence[int], train: Train) -> Replication:
    """Train with one seed after the other, and write the result to `replicate.json`. Finished seeds are not repeated.

    The budget of the config is for all seeds together. The test scores do not select anything.
    """
    require_test(config, "replicate")
    started = time.monotonic()
    summaries: list[Summary] = []
    rows: list[ReplicatedRun] = []
    result: Replication | None = None
    identity = {"config": {**config.identity(), "train.seed": None}, "seeds": list(seeds)}
    path = folder_of(config, "replicates", identity) / "replicate.json"
    for seed in seeds:
        left = left_of(config.budget, summaries, (time.monotonic() - started) / 60)
        seeded = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed}), "budget": left})
        trained = await train(seeded)
        summaries.append(trained.summary)
        rows.append(_row(seed, trained))
        result = written(report(rows, seeds, spent_in(summaries)), path)
    assert result is not None, "the number of seeds must be at least 1"
    return result


def _row(seed: int, result: Result) -> ReplicatedRun:
    initial, best, gain = result.summary.initial, result.summary.best, result.summary.gain
    gains = {split: each for split, each in (("val", gain.val), ("test", gain.test)) if each}
    best_val, best_interval = best.confirmed
    return ReplicatedRun(
        seed=seed,
        run=str(result.path),
        initial_val=initial.val or 0.0,
        best_val=best_val or 0.0,
        initial_test=initial.test or 0.0,
        best_test=best.test or 0.0,
        tasks={split: each.tasks for split, each in gains.items()},
        interval={
            "initial_val": initial.val_interval,
            "best_val": best_interval,
            "initial_test": initial.test_interval,
            "best_test": best.test_interval,
            **{f"gain_{split}": each.interval for split, each in gains.items()},
        },
        accepted=result.summary.steps.accepted,
        target_calls=result.summary.calls.target,
    )


def report(rows: Sequence[ReplicatedRun], seeds: Sequence[int], spent: Spent) -> Replication:
    """The scores by seed, means with 95 % intervals, the share of seeds that improved, and the best seed.

    An interval takes two kinds of chance into account: the seeds differ (Student's t), and all seeds were measured on
    the same few tasks.
    """
    mean = {column: fmean(row.value(column) for row in rows) for column in COLUMNS}
    intervals = {column: _interval(column, rows) for column in COLUMNS}
    improved = {split: sum(row.value(f"gain_{split}") > 0 for row in rows) / len(rows) for split in ("val", "test")}
    tasks = max(row.tasks.get("test", 0) for row in rows)
    held_out = Gain(before=mean["initial_test"], after=mean["best_test"], tasks=tasks, interval=intervals["gain_test"])
    verdict = _verdict(held_out, len(rows), improved["test"], spent)
    return Replication(
        verdict=verdict.text,
        outcome=verdict.word,
        seeds=tuple(seeds),
        rows=tuple(rows),
        mean=mean,
        interval=intervals,
        improved=improved,
        best_seed_by_validation=max(rows, key=lambda row: (row.best_val, -row.seed)).seed,
    )


def _interval(column: str, rows: Sequence[ReplicatedRun]) -> Interval | None:
    """The 95 % interval of a column's mean. It combines the spread of the seeds with the mean width of the single
    runs' intervals, because seeds with equal scores say nothing about other tasks."""
    values = [row.value(column) for row in rows]
    mean, over_seeds = fmean(values), seeds_interval(values)
    half = over_seeds[1] - mean if over_seeds else 0.0
    bounds = [bound for row in rows if (bound := row.interval.get(column))]
    if len(bounds) < len(rows):
        return over_seeds and _possible(over_seeds, column)
    below, above = (fmean(abs(each[side] - v) for each, v in zip(bounds, values, strict=True)) for side in (0, 1))
    return _possible((mean - math.hypot(half, below), mean + math.hypot(half, above)), column)


def _verdict(gain: Gain, seeds: int, improved: float, spent: Spent) -> Sentence:
    """The verdict on all seeds together, by their scores on the held-out tasks."""
    share = f"of which {round(improved * seeds)} improved"
    shown = f"{figures(gain)}, the mean of {seeds} seed{'' if seeds == 1 else 's'}, {share}"
    if gain.word == "cannot tell":
        return say("cannot tell", shown, because=too_few(gain), advice="more held-out tasks or seeds", spent=spent)
    return say(gain.word, shown, spent=spent)


def require_test(config: Config, command: str) -> None:
    if not config.evaluation.test:
        raise UserError(f"evaluation.test: must be true, because {command} compares scores of the test split")


def left_of(budget: BudgetConfig, spent: Sequence[Bill], minutes: float) -> BudgetConfig:
    """The rest of a shared budget after the costs of earlier runs. Raises Stopped if nothing is left."""
    used = {
        "max_calls": sum(each.calls.of(role) for each in spent for role in each.calls.roles),
        "max_tokens": sum(each.tokens.of(role).total for each in spent for role in each.calls.roles),
        "max_usd": sum(each.cost_usd.of(role) or 0.0 for each in spent for role in each.calls.roles),
        "max_minutes": minutes,
    }
    lower = {}
    for name, amount in used.items():
        limit = getattr(budget, name)
        if limit is not None and limit <= amount:
            raise Stopped(f"budget.{name}: the runs so far have used up the limit of {limit:g}; raise it to continue")
        lower[name] = None if limit is None else limit - amount
    return budget.model_copy(update=lower)


def _possible(interval: tuple[float, float], name: str) -> tuple[float, float]:
    """The interval without impossible values: Student's t may give scores below 0 or above 1."""
    low = -1.0 if "gain" in name else 0.0
    return max(low, interval[0]), min(1.0, interval[1])
