"""Comparisons and replicates on the terminal."""

from __future__ import annotations

from typing import Any

from skillopt.report.columns import table_lines
from skillopt.report.text import chance, counted, ranged, score

_LISTED = 8
"""Items of a list that are shown; comparison.json has them all."""


def comparison_table(result: dict[str, Any]) -> list[str]:
    rows = [(ranged(side["score"], side["interval"]), str(side["tokens"]), side["name"]) for side in _sides(result)]
    return table_lines((f"{result['split']} score ({result['metric']})", "tokens", "skill"), rows, left=(0, 2))


def _sides(result: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return result["a"], result["b"]


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
        items = [result["names"].get(item, item) for item in result["lists"][name]]
        shown = ", ".join(items[:_LISTED]) + (" …" if len(items) > _LISTED else "")
        lines.append(f"{title}: {len(items)}" + (f" ({shown})" if items else ""))
    if "test_reads" in result:
        lines.append(f"The test split has been read {result['test_reads']} times for this skill's run.")
    return lines


def replicate_table(result: dict[str, Any]) -> list[str]:
    """Seed by seed, then the mean and its interval."""
    names = ("initial_val", "best_val", "initial_test", "best_test")
    rows = [
        (str(row["seed"]), *(score(row[name]) for name in names), str(row["accepted"]), f"{row['target_calls']:,}")
        for row in result["rows"]
    ]
    rows.append(("mean", *(score(result["mean"][name]) for name in names), "", ""))
    bounds = (result["interval"][name] for name in names)
    rows.append(("95 %", *(f"{b[0]:.2f}–{b[1]:.2f}" if b else "–" for b in bounds), "", ""))
    return table_lines(("seed", *(name.replace("_", " ") for name in names), "accepted", "calls"), rows)


def replicate_lines(result: dict[str, Any]) -> list[str]:
    lines = []
    for split, title in (("val", "validation"), ("test", "test")):
        gain, bounds = result["mean"][f"gain_{split}"], result["interval"][f"gain_{split}"]
        inside = f" [{bounds[0]:+.2f} to {bounds[1]:+.2f}]" if bounds else ""
        share = result["improved"][split]
        lines.append(f"Gain on {title}: {gain:+.2f}{inside}; {share:.0%} of {len(result['rows'])} seeds improved")
    return [*lines, f"Best seed by validation: {result['best_seed_by_validation']}"]
