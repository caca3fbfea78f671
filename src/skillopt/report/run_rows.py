"""The runs below a folder: one row each, for a table on the terminal or a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from skillopt.measure.bill import billed
from skillopt.report.costs import total_usd
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.status import status_of


@dataclass(frozen=True, kw_only=True)
class RunRow:
    path: Path
    benchmark: str
    name: str
    status: str
    """One of run.status.WORDS."""
    seed: int | None = None
    initial_val: float | None = None
    best_val: float | None = None
    initial_test: float | None = None
    best_test: float | None = None
    steps: int = 0
    planned_steps: int | None = None
    accepted: int = 0
    tokens: int | None = None
    """Length of the best skill."""
    calls: int = 0
    usd: float | None = None
    """None where a price is unknown."""
    seconds: float = 0.0
    changed: float = 0.0
    """When the run last wrote its summary (seconds since 1970)."""
    target: str = ""
    optimizer: str = ""


_ROW = TypeAdapter(RunRow)


def list_runs(root: Path) -> list[RunRow]:
    """All runs below `root` (an output folder, a benchmark's folder in it, or one run), the newest first."""
    folders = {path.parent for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}config.json")}
    rows = [run_row(RunDirectory(folder)) for folder in folders]
    return sorted(rows, key=lambda row: (-row.changed, str(row.path)))


def run_row(run: RunDirectory) -> RunRow:
    known: dict[str, Any] = {"path": run.root, "benchmark": run.root.resolve().parent.name, "name": run.root.name}
    try:
        config = read_json(run.config_json)
        known |= {
            "seed": config["train.seed"],
            "target": config["models.target_model"],
            "optimizer": config["models.optimizer_model"],
            "changed": run.config_json.stat().st_mtime,
        }
        if not run.summary.exists():
            known["status"] = status_of(None, run.events, busy=run.busy())[0]
            return _ROW.validate_python(known)
        summary = read_json(run.summary)
        if summary["status"] != "finished":
            summary = billed(run, summary)
        return _ROW.validate_python(known | _figures(summary, run))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return RunRow(**{key: known[key] for key in ("path", "benchmark", "name")}, status="unreadable")


def _figures(summary: Mapping[str, Any], run: RunDirectory) -> dict[str, Any]:
    return {
        "status": status_of(summary, run.events, busy=run.busy())[0],
        "benchmark": summary["benchmark"],
        "initial_val": summary["initial"]["val"],
        "best_val": summary["best"]["val"],
        "initial_test": summary["initial"]["test"],
        "best_test": summary["best"]["test"],
        "steps": summary["steps"]["run"],
        "planned_steps": summary["plan"]["steps"]["planned"],
        "accepted": summary["steps"]["accepted"],
        "tokens": summary["best"]["tokens"],
        "calls": summary["calls"]["target"] + summary["calls"]["optimizer"],
        "usd": total_usd(summary),
        "seconds": summary["seconds"],
        "changed": run.summary.stat().st_mtime,
    }
