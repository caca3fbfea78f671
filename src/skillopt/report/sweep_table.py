"""Sweeps and transfers: tables for the terminal, a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skillopt.report.columns import table_lines
from skillopt.report.svg import Frame, label, standalone, svg
from skillopt.report.text import ranged, score


def transfer_table(result: dict[str, Any]) -> list[str]:
    rows = [
        (
            row["skill"],
            *(ranged(row.get(split), row.get(f"{split}_interval")) for split in ("val", "test")),
            str(row.get("tokens", "")),
            row["where"],
        )
        for row in result["rows"]
    ]
    return table_lines(("skill", "validation", "test", "tokens", "on"), rows, left=(0, 4))


def sweep_table(result: dict[str, Any]) -> list[str]:
    """Trials in the order of their validation scores. Only the winner has a test score.

    `calls` are the target's that a trial paid for, `known` those that the shared journal answered.
    """
    keys = [key.rpartition(".")[2] for key in result["axes"]]
    winner, rows = result["best"]["trial"], []
    for row in sorted(result["rows"], key=lambda row: (-row["best_val"], row["trial"] != winner, row["trial"])):
        test = ranged(result["best"]["test"], result["best"]["test_interval"]) if row["trial"] == winner else ""
        rows.append(
            (
                f"{row['trial']} ←" if row["trial"] == winner else str(row["trial"]),
                *(str(row["values"][key]) for key in result["axes"]),
                ranged(row["best_val"], row["val_interval"]),
                f"{row['accepted']} of {row['steps']}",
                str(row["tokens"]),
                str(row["target_calls"]),
                str(row["from_journal"]),
                test,
            )
        )
    return table_lines(("trial", *keys, "validation", "accepted", "tokens", "calls", "known", "test"), rows)


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
    """A bar a trial, best first, with its interval."""
    rows = sorted(result["rows"], key=lambda row: (-row["best_val"], row["trial"]))
    title = f"Validation score by trial: {', '.join(result['axes'])}"
    frame = Frame(width=640, height=60 + 22 * len(rows), x=(0, 1), y=(len(rows), 0), left=250, right=60)
    bars = "".join(_bar(row, place, row["trial"] == result["best"]["trial"], frame) for place, row in enumerate(rows))
    return standalone(svg(frame.width, frame.height, title, label(8, 18, title), bars))


def _bar(row: dict[str, Any], place: int, best: bool, frame: Frame) -> str:
    said = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in row["values"].items())
    low, high = row["val_interval"] or (row["best_val"], row["best_val"])
    ends = [(low, place + 0.5), (high, place + 0.5)]
    corners = [(0, place + 0.2), (row["best_val"], place + 0.2), (row["best_val"], place + 0.8), (0, place + 0.8)]
    (x, y), shown = frame.at(0, place + 0.5), said if len(said) <= 40 else f"{said[:39]}…"
    return (
        label(x - 8, y + 4, shown, anchor="end")
        + frame.line(corners, "h4" if best else "length")
        + frame.line(ends, "score")
        + label(frame.width - frame.right + 8, y + 4, f"{row['best_val']:.3f}")
    )


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
