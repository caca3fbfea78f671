"""Sweeps: trains with several values of some config keys, and selects the best trial by its validation score.

All trials use one budget and one journal, so the same request to a deterministic model is paid for only once. Only the
best trial reads the test split, after it was selected.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import yaml

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.replicate import left_of
from skillopt.measure.session import folder_of, written
from skillopt.record.directory import is_private, make_folder
from skillopt.record.result import Result
from skillopt.record.results import Sweep, SweepRow
from skillopt.record.summary import Summary

Axes = dict[str, list[str]]
"""Values by dotted config key, as written on the command line."""
Load = Callable[[Sequence[str]], Config]
"""A function that returns the config with some overrides."""
TrainTrial = Callable[[Config, Path], Awaitable[Result]]
"""A function that trains with a config and the path of a shared journal."""

_MOST = 1000


def parse_axes(texts: Sequence[str]) -> tuple[Axes, list[str]]:
    """Divide the arguments into axes (`key=2,4,8`) and overrides for all trials (`key=4`)."""
    axes: Axes = {}
    fixed: list[str] = []
    for text in texts:
        key, equals, raw = text.partition("=")
        values = split_values(raw)
        if equals and len(values) > 1:
            if key in axes:
                raise UserError(f"'{text}': {key} is swept twice; give all its values in one argument")
            if len(set(values)) < len(values):
                raise UserError(f"'{text}': a value is given twice; remove one of the two")
            axes[key] = values
        else:
            fixed.append(text)
    if not axes:
        raise UserError("nothing to sweep: give a key several values, such as optimizer.learning_rate=2,4,8")
    return axes, fixed


def split_values(raw: str) -> list[str]:
    """Split a text at its commas, except those inside brackets, braces or quotes: `[a,b],[c]` gives two values."""
    parts, depth, quote = [""], 0, ""
    for character in raw:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def make_trials(axes: Axes) -> list[list[str]]:
    """The overrides of each trial: all combinations of the axes' values."""
    grid = list(itertools.islice(itertools.product(*axes.values()), _MOST + 1))
    if len(grid) > _MOST:
        raise UserError(f"the grid has more than {_MOST} trials; give fewer values")
    return [[f"{key}={value}" for key, value in zip(axes, values, strict=True)] for values in grid]


async def sweep(load: Load, texts: Sequence[str], train: TrainTrial) -> Sweep:
    """Run every trial, then measure the best trial on the test split. If the call is repeated, it continues an
    interrupted sweep.

    The budget of the config is for all trials together. `sweep.json` is written after each trial.
    """
    axes, fixed = parse_axes(texts)
    base = load(fixed)
    trials = make_trials(axes)
    configs = [load([*fixed, *trial]) for trial in trials]  # a wrong value is refused before the first call is paid for
    folder = folder_of(base, "sweeps", {"config": base.identity(), "axes": axes})
    make_folder(folder, private=is_private(base.env.private, base.env.output_root))
    started = time.monotonic()
    summaries: list[Summary] = []
    rows: list[SweepRow] = []

    def report(best: SweepRow | None = None) -> Sweep:
        values = {key: tuple(texts) for key, texts in axes.items()}
        result = Sweep(axes=values, planned=len(trials), rows=tuple(rows), chosen_by="validation", best=best)
        return written(result, folder / "sweep.json")

    for config, trial in zip(configs, trials, strict=True):
        unread = config.with_values({"evaluation.test": False})
        result = await train(_within(unread, base, summaries, started), folder / "journal.sqlite")
        summaries.append(result.summary)
        rows.append(_row(len(rows) + 1, trial, result))
        report()
    winner = choose(rows).trial - 1
    others = summaries[:winner] + summaries[winner + 1 :]
    final = (await train(_within(configs[winner], base, others, started), folder / "journal.sqlite")).summary
    test = {"test": final.best.test, "test_interval": final.best.test_interval, "initial_test": final.initial.test}
    rows[winner] = rows[winner].model_copy(update=test)
    return report(rows[winner]).model_copy(update={"benchmark": final.benchmark})


def choose(rows: Sequence[SweepRow]) -> SweepRow:
    """The trial with the highest validation score. If several trials have this score, the trial with the fewest
    rollouts until its best version; if several trials have the fewest, the first of them."""
    return max(rows, key=lambda row: (row.best_val, -row.rollouts_to_best, -row.trial))


def _within(config: Config, base: Config, spent: Sequence[Summary], started: float) -> Config:
    left = left_of(base.budget, spent, (time.monotonic() - started) / 60)
    return config.model_copy(update={"budget": left})


def _row(number: int, trial: list[str], result: Result) -> SweepRow:
    summary = result.summary
    return SweepRow(
        trial=number,
        values={key: yaml.safe_load(raw) for key, _, raw in (text.partition("=") for text in trial)},
        run=str(result.path),
        initial_val=summary.initial.val or 0.0,
        best_val=summary.best.val or 0.0,
        val_interval=summary.best.val_interval,
        accepted=summary.steps.accepted,
        steps=summary.steps.run,
        tokens=summary.best.tokens,
        target_calls=summary.calls.target,
        optimizer_calls=summary.calls.optimizer,
        from_journal=summary.calls.from_journal,
        rollouts_to_best=summary.rollouts_to_best,
    )
