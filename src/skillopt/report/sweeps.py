"""Sweeps and transfers: tables for the terminal, a plot."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from rich.table import Table

from skillopt.report.text import printable, ranged, score

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 640, 22, 250, 60, 34


def transfer_table(result: dict[str, Any]) -> Table:
    table = Table(show_header=True, box=None, pad_edge=False)
    for name in ("", "on", "validation", "test", "tokens"):
        table.add_column(name, justify="left" if name in {"", "on"} else "right")
    for row in result["rows"]:
        scores = (ranged(row.get(split), row.get(f"{split}_interval")) for split in ("val", "test"))
        table.add_row(row["skill"], printable(row["where"]), *scores, str(row.get("tokens", "")))
    return table


def sweep_table(result: dict[str, Any]) -> Table:
    """Trials in the order of their validation scores. Only the winner has a test score.

    `calls` are the target's that a trial paid for, `known` those that the shared journal answered.
    """
    table = Table(show_header=True, box=None, pad_edge=False)
    keys = [key.rpartition(".")[2] for key in result["axes"]]
    for name in ("trial", *keys, "validation", "accepted", "tokens", "calls", "known", "test"):
        table.add_column(printable(name), justify="right", no_wrap=True)
    winner = result["best"]["trial"]
    for row in sorted(result["rows"], key=lambda row: (-row["best_val"], row["trial"] != winner, row["trial"])):
        test = ranged(result["best"]["test"], result["best"]["test_interval"]) if row["trial"] == winner else ""
        table.add_row(
            f"{row['trial']} ←" if row["trial"] == winner else str(row["trial"]),
            *(printable(str(row["values"][key])) for key in result["axes"]),
            ranged(row["best_val"], row["val_interval"]),
            f"{row['accepted']} of {row['steps']}",
            str(row["tokens"]),
            str(row["target_calls"]),
            str(row["from_journal"]),
            test,
        )
    return table


def sweep_lines(result: dict[str, Any]) -> list[str]:
    best, rows = result["best"], result["rows"]
    chosen = ", ".join(f"{key}={value}" for key, value in best["values"].items())
    ties = sum(row["best_val"] == best["best_val"] for row in rows) - 1
    lines = [f"Best by validation, of {len(rows)} trials: {chosen}" + (f" (as good: {ties} others)" if ties else "")]
    lines.append(
        f"Its test score: {ranged(best['test'], best['test_interval'])} (initial skill {score(best['initial_test'])}). "
        "The validation score of the best of many is partly luck; the test score is not."
    )
    return [*lines, f"Run: {best['run']}"]


def sweep_plot(result: dict[str, Any]) -> str:
    """A bar a trial, best first, with its interval: SVG without a plotting library."""
    rows = sorted(result["rows"], key=lambda row: (-row["best_val"], row["trial"]))
    height = _TOP + _ROW * len(rows) + 26
    marks = "".join(
        _bar(row, _TOP + _ROW * place, row["trial"] == result["best"]["trial"]) for place, row in enumerate(rows)
    )
    grid = "".join(_grid(share, height) for share in (0, 0.25, 0.5, 0.75, 1))
    title = f"Validation score by trial: {', '.join(result['axes'])}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="currentColor"><title>{escape(title)}</title>'
        f'<text x="8" y="18" font-size="13">{escape(title)}</text>{grid}{marks}</svg>\n'
    )


def _across(value: float) -> float:
    return _LEFT + value * (_WIDTH - _LEFT - _RIGHT)


def _grid(share: float, height: int) -> str:
    x = _across(share)
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{height - 22}" stroke="currentColor" opacity="0.15"/>'
        f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{share:g}</text>'
    )


def _bar(row: dict[str, Any], y: float, best: bool) -> str:
    label = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in row["values"].items())
    low, high = row["val_interval"] or (row["best_val"], row["best_val"])
    middle = y + _ROW / 2 - 3
    return (
        f'<text x="{_LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(_short(label))}</text>'
        f'<rect x="{_LEFT}" y="{y:.1f}" width="{_across(row["best_val"]) - _LEFT:.1f}" height="{_ROW - 6}" '
        f'fill="{"#16a34a" if best else "#2563eb"}" opacity="0.8"/>'
        f'<line x1="{_across(low):.1f}" x2="{_across(high):.1f}" y1="{middle:.1f}" y2="{middle:.1f}" '
        'stroke="currentColor" stroke-width="1.5"/>'
        f'<text x="{_WIDTH - _RIGHT + 8}" y="{middle + 4:.1f}">{row["best_val"]:.3f}</text>'
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def sweep_markdown(result: dict[str, Any]) -> str:
    """The table as a file."""
    names = ["trial", *result["axes"], "validation", "interval", "accepted", "target calls"]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cells(row, result["axes"])) + " |" for row in result["rows"]]
    return "\n".join([*lines, "", *sweep_lines(result), ""])


def _cells(row: dict[str, Any], axes: Sequence[str]) -> list[str]:
    bounds = row["val_interval"]
    inside = f"{bounds[0]:.2f}–{bounds[1]:.2f}" if bounds else "–"
    values = [str(row["values"][key]).replace("|", "\\|") for key in axes]
    counts = [f"{row['accepted']} of {row['steps']}", str(row["target_calls"])]
    return [str(row["trial"]), *values, f"{row['best_val']:.3f}", inside, *counts]
