"""Makes a row for each run in a folder, for tables on the terminal and on the web page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from skillopt.errors import UserError
from skillopt.record.base import Interval
from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt.record.summary import Summary
from skillopt.view.diagnosis import current_summary
from skillopt.view.figures import total_usd


@dataclass(frozen=True, kw_only=True)
class RunRow:
    path: Path
    benchmark: str
    name: str
    status: str
    """The run's status: one of the words in `record.status.WORDS`."""
    reason: str = ""
    """Why the run ended before its last step; empty if it did not."""
    seed: int | None = None
    initial_val: float | None = None
    best_val: float | None = None
    val_interval: Interval | None = None
    """95 % interval of the best skill's validation score."""
    initial_test: float | None = None
    best_test: float | None = None
    test_interval: Interval | None = None
    steps: int = 0
    planned_steps: int | None = None
    accepted: int = 0
    tokens: int | None = None
    """Tokens of the best skill."""
    calls: int = 0
    usd: float | None = None
    """The cost in dollars; None if a price is unknown."""
    seconds: float = 0.0
    changed: float = 0.0
    """The time at which the run last wrote its summary, in seconds since 1970."""
    target: str = ""
    optimizer: str = ""


Row = TypeVar("Row", bound=RunRow)


def list_runs(root: Path) -> list[RunRow]:
    """All runs in `root`, the newest first. `root` is an output folder, a benchmark's folder, or one run."""
    folders = {path.parent for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}config.json")}
    rows = [run_row(RunDirectory(folder)) for folder in folders]
    return sorted(rows, key=lambda row: (-row.changed, str(row.path)))


def run_row(files: RunDirectory) -> RunRow:
    row = RunRow(path=files.root, benchmark=files.root.resolve().parent.name, name=files.root.name, status="unreadable")
    try:
        files.check_files()
        run = Run(files)
        train, models, changed = run.config.train, run.config.models, files.config_json.stat().st_mtime
        row_with_config = replace(
            row, seed=train.seed, target=models.target_model, optimizer=models.optimizer_model, changed=changed
        )
        summary = current_summary(run)
        if summary is None:
            return replace(row_with_config, status=run.status[0])
        status, reason = run.status
        figures = with_figures(row_with_config, summary)
        return replace(figures, status=status, reason=reason, changed=files.summary.stat().st_mtime)
    except (UserError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return row


def with_figures(row: Row, summary: Summary) -> Row:
    """A copy of the row with the values of the run's summary, such as the status and the scores."""
    return replace(
        row,
        status=summary.status,
        reason=summary.stop_reason,
        seed=summary.seed,
        benchmark=summary.benchmark,
        initial_val=summary.initial.val,
        best_val=summary.best.val,
        val_interval=summary.best.val_interval,
        initial_test=summary.initial.test,
        best_test=summary.best.test,
        test_interval=summary.best.test_interval,
        steps=summary.steps.run,
        planned_steps=summary.plan.steps.planned if summary.plan else None,
        accepted=summary.steps.accepted,
        tokens=summary.best.tokens,
        calls=sum(summary.calls.of(role) for role in summary.calls.roles),
        usd=total_usd(summary),
        seconds=summary.seconds,
    )
