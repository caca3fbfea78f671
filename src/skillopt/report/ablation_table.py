"""An ablation on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from skillopt.report.text import counted, printable, score

VERDICTS = {"earns": "earns", "harmful": "HARMFUL", "nothing": "nothing measurable", "mixed": "wins and loses alike"}


def ablation_table(result: Mapping[str, Any]) -> Table:
    """The parts by what they are worth, the best first."""
    table = Table(show_header=True, box=None, pad_edge=False)
    for name in ("worth", "95 %", "tokens", "verdict", result["by"], ""):
        table.add_column(name, justify="right" if name in {"worth", "tokens"} else "left", no_wrap=True)
    for row in result["rows"]:
        low, high = row["interval"] or (0.0, 0.0)
        note = f" ({row['note']})" if row["note"] else ""
        said = " ".join(row["text"].split())
        cells = (
            f"{row['worth']:+.3f}",
            f"[{low:+.3f} to {high:+.3f}]",
            str(row["tokens"]),
            VERDICTS[row["verdict"]],
            row["name"],
            f"{said[:56]}{'…' if len(said) > 56 else ''}{note}",
        )
        table.add_row(*(printable(cell) for cell in cells))
    return table


def ablation_lines(result: Mapping[str, Any]) -> Iterator[str]:
    by = result["by"]
    repeats = f", {result['repeats']} samples each" if result["repeats"] > 1 else ""
    yield (
        f"Version {result['version']}: validation {score(result['score'])} with everything, on {result['items']} items"
        f"{repeats}. Worth: the score with the {by} minus the score without it."
    )
    for verdict, what in (("harmful", "Harmful"), ("nothing", "Nothing measurable")):
        rows = [row for row in result["rows"] if row["verdict"] == verdict]
        tokens = sum(row["tokens"] for row in rows)
        names = "; ".join(row["name"] for row in rows)
        yield f"{what}: {counted(len(rows), by)}" + (f", {counted(tokens, 'token')} ({names})" if rows else "")
    together = result["together"]
    if together:
        yield (
            f"Without all {len(together['names'])} that earn nothing: {0 - together['worth']:+.3f}, "
            f"{together['tokens']} tokens fewer"
            + ("; some of them say the same, so remove one at a time" if together["worth"] > 1e-9 else "")
        )
    if not result["deterministic"]:
        yield "The target is noisy: small effects need more --repeats; many looks are paid for (Holm's method)."
    if result["not_measured"]:
        yield f"Not measured: {', '.join(result['not_measured'])}"
    yield "Nothing was removed: it is for you to decide."
