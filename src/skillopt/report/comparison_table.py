"""Comparisons and replicates on the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from skillopt.report.text import chance, counted, printable, ranged, score

_LISTED = 8
"""Items of a list that are shown; comparison.json has them all."""


def comparison_table(result: dict[str, Any]) -> Table:
    table = Table(show_header=True, box=None, pad_edge=False)
    sides = (result["a"], result["b"])
    for name in ("", *(printable(side["name"]) for side in sides)):
        table.add_column(name, justify="right" if name else "left", overflow="fold")
    table.add_row(f"{result['split']} score ({result['metric']})", *(ranged(s["score"], s["interval"]) for s in sides))
    table.add_row("skill length (tokens)", *(str(s["tokens"]) for s in sides))
    return table


def comparison_lines(result: dict[str, Any]) -> list[str]:
    """The paired test in words, then the items."""
    a, b = result["a"]["name"], result["b"]["name"]
    samples = counted(result["repeats"], "sample")
    lines = [
        f"{b} minus {a}: {result['difference']:+.3f}; {samples} of each of {result['items']} items; paired exact test, "
        f"two-sided: {chance(result['p'])}"
    ]
    for name, title in (
        ("improved", f"only {b} solves"),
        ("regressed", f"only {a} solves"),
        ("both_pass", "both solve"),
        ("both_fail", "neither solves"),
    ):
        items = result["lists"][name]
        shown = ", ".join(items[:_LISTED]) + (" …" if len(items) > _LISTED else "")
        lines.append(f"{title}: {len(items)}" + (f" ({shown})" if items else ""))
    if "test_reads" in result:
        lines.append(f"The test split has been read {result['test_reads']} times for this skill's run.")
    return lines


def replicate_table(result: dict[str, Any]) -> Table:
    """Seed by seed, then the mean and its interval."""
    table = Table(show_header=True, box=None, pad_edge=False)
    names = ("initial_val", "best_val", "initial_test", "best_test")
    for name in ("seed", *(name.replace("_", " ") for name in names), "accepted steps", "target calls"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        table.add_row(
            str(row["seed"]), *(score(row[name]) for name in names), str(row["accepted"]), str(row["target_calls"])
        )
    table.add_row("mean", *(score(result["mean"][name]) for name in names), "", "")
    bounds = (result["interval"][name] for name in names)
    table.add_row("95 %", *(f"{b[0]:.2f}–{b[1]:.2f}" if b else "–" for b in bounds), "", "")
    return table


def replicate_lines(result: dict[str, Any]) -> list[str]:
    lines = []
    for split, title in (("val", "validation"), ("test", "test")):
        gain, bounds = result["mean"][f"gain_{split}"], result["interval"][f"gain_{split}"]
        inside = f" [{bounds[0]:+.2f} to {bounds[1]:+.2f}]" if bounds else ""
        share = result["improved"][split]
        lines.append(f"Gain on {title}: {gain:+.2f}{inside}; {share:.0%} of {len(result['rows'])} seeds improved")
    return [*lines, f"Best seed by validation: {result['best_seed_by_validation']}"]
