"""An ablation on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from skillopt.report.columns import table_lines
from skillopt.report.text import counted, score

VERDICTS = {"earns": "earns", "harmful": "HARMFUL", "nothing": "no effect seen", "mixed": "wins and loses"}
SURE = 0.05
"""Above this p, a loss of several parts together may be chance."""
_TEXT = 40
"""Characters of a part that a line shows."""


def ablation_table(result: Mapping[str, Any]) -> list[str]:
    """The parts by what they are worth, the best first."""
    rows = []
    for row in result["rows"]:
        low, high = row["interval"] or (0.0, 0.0)
        note = f" ({row['note']})" if row["note"] else ""
        said = " ".join(row["text"].split())
        rows.append(
            (
                f"{row['worth']:+.2f}",
                f"{low:+.2f} to {high:+.2f}",
                str(row["tokens"]),
                VERDICTS[row["verdict"]],
                f"{row['name']}: {said[:_TEXT]}{'…' if len(said) > _TEXT else ''}{note}",
            )
        )
    return table_lines(("worth", "95 %", "tokens", "verdict", result["by"]), rows, left=(1, 3, 4))


def ablation_lines(result: Mapping[str, Any]) -> Iterator[str]:
    by = result["by"]
    repeats = f", {result['repeats']} samples each" if result["repeats"] > 1 else ""
    yield (
        f"Version {result['version']}: validation {score(result['score'])} with everything, on {result['items']} items"
        f"{repeats}. Worth: the score with the {by} minus the score without it."
    )
    for verdict, what in (("harmful", "Harmful"), ("nothing", "No effect seen")):
        rows = [row for row in result["rows"] if row["verdict"] == verdict]
        tokens = sum(row["tokens"] for row in rows)
        names = "; ".join(row["name"] for row in rows)
        yield f"{what}: {counted(len(rows), by)}" + (f", {counted(tokens, 'token')} ({names})" if rows else "")
    together = result["together"]
    if together:
        yield (
            f"Without all {len(together['names'])} of these: {0 - together['worth']:+.2f}, "
            f"{together['tokens']} tokens fewer{_why_together(result, together)}"
        )
    if not result["deterministic"]:
        yield "The target is noisy: small effects need more --repeats; many looks are paid for (Holm's method)."
    if result["not_measured"]:
        yield f"Not measured: {', '.join(result['not_measured'])}"
    yield "Nothing was removed: it is for you to decide."


def _why_together(result: Mapping[str, Any], together: Mapping[str, Any]) -> str:
    """Where leaving them out together costs something: one alone may explain it, all a little, or two say the same."""
    lost = together["worth"]
    if lost <= 1e-9:
        return ""
    if not result["deterministic"] and together["p_useful"] > SURE:
        return "; that may be chance"
    alone = [row for row in result["rows"] if row["name"] in together["names"]]
    largest = max(alone, key=lambda row: row["worth"])
    if largest["worth"] >= lost - 1e-9:
        return f"; {largest['name']} alone explains that ({0 - largest['worth']:+.2f} without it)"
    if sum(max(0.0, row["worth"]) for row in alone) >= lost - 1e-9:
        return "; that is what they cost one by one, added up"
    return "; some of them say the same, so remove one at a time"
