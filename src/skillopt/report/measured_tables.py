"""What ablations, comparisons, replicates, sweeps and transfers show on the terminal; a sweep's plot and page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from skillopt.report.columns import table_lines
from skillopt.report.markdown import table
from skillopt.report.svg import Frame, label, standalone, svg
from skillopt.report.text import chance, counted, ranged, score

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


_LISTED = 8
"""Items of a list that are shown; comparison.json has them all."""


def evaluation_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """One skill on one split, below its verdict."""
    on = f"on {summary['items']} {summary['split']} items"
    yield f"hard {score(summary['hard'])}, soft {score(summary['soft'])} {on}"
    if always := summary["majority"]:
        yield f"Always answering {always['answer']!r}: {ranged(always['score'], always['interval'])}"
    if "test_reads" in summary:
        yield f"The test split has been read {summary['test_reads']} times for this skill's run."


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
    rows = [_cells(row, result["axes"]) for row in result["rows"]]
    return "\n".join([table(names, rows), "", *sweep_lines(result), ""])


def _cells(row: dict[str, Any], axes: Sequence[str]) -> list[str]:
    bounds = row["val_interval"]
    inside = f"{bounds[0]:.2f}–{bounds[1]:.2f}" if bounds else "–"
    values = [str(row["values"][key]).replace("|", "\\|") for key in axes]
    counts = [f"{row['accepted']} of {row['steps']}", str(row["target_calls"])]
    return [str(row["trial"]), *values, f"{row['best_val']:.3f}", inside, *counts]
