"""The pictures of a run: progress, learning rate, heat map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.view.curves import HeatMap, curves
from skillopt.view.svg import Frame, label, legend, mark, svg, ticks
from skillopt.view.text import printable

_LEVELS = 5
_VERDICTS = (("accept", "accepted"), ("reject", "rejected"), ("indecisive", "indecisive"), ("guidance", "guidance"))


def progress_plot(
    history: Sequence[StepRecord], summary: Summary, tokens: Mapping[int, int], width: float = 960
) -> str:
    """Validation score and skill length over the steps, with every candidate that a gate measured.

    `tokens` is the length of each version.
    """
    drawn = curves(history, summary, tokens)
    if not drawn.scores:
        return svg(width, 40, "Validation score and skill length", label(12, 24, "Nothing was measured."))
    last = max(float(summary.plan.steps.planned if summary.plan else 0), drawn.scores[-1][0], 1.0)
    tail = 0.3 + last / 50  # so that the last step has a width, too
    scores, lengths = ([*each, (each[-1][0] + tail, each[-1][1])] for each in (drawn.scores, drawn.lengths))
    marks = drawn.marks
    last += tail
    tall = 340 if width > 600 else 300
    frame = Frame(width=width, height=tall, x=(0, last), y=_range([y for _, y in scores] + [m.score for m in marks]))
    longest = max(y for _, y in lengths) * 1.25 or 1
    below = Frame(width=width, height=tall, x=(0, last), y=(0, longest))
    size = 4.0 if len(marks) <= 60 else 2.8
    seen = {each.kind for each in marks}
    entries = [("score", "validation"), ("length", "skill tokens"), *(pair for pair in _VERDICTS if pair[0] in seen)]
    rows = [entries] if width > 600 else [entries[:2], entries[2:]]
    return svg(
        width,
        tall,
        "Validation score and skill length over the steps",
        below.area(lengths, "length"),
        _epochs(drawn.ends, frame),
        frame.grid(ticks(*frame.y), "{:.2g}"),
        below.right_labels(ticks(0, longest, 4)),
        frame.steps_axis(),
        frame.staircase(scores, "score"),
        *(mark(each.kind, frame.at(each.x, each.score), each.said, size) for each in marks),
        *(legend(frame.left, 12 + 15 * n, row) for n, row in enumerate(rows)),
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Tenths around all values, and not less than a fifth of the scale."""
    low, high = math.floor(min(values) * 10 - 0.2) / 10, math.ceil(max(values) * 10 + 0.2) / 10
    low, high = max(0.0, low), min(1.0, high)
    if high - low < 0.2:
        low, high = max(0.0, high - 0.2), min(1.0, max(0.0, high - 0.2) + 0.2)
    return low, high


def _epochs(ends: Sequence[float], frame: Frame) -> str:
    """A light line where an epoch ends; none if the lines would be too close."""
    if len(ends) * 45 > frame.width:
        return ""
    return "".join(
        f'<path class="epoch" d="M{frame.at(x, 0)[0]:.1f} {frame.top:g}V{frame.height - frame.bottom:g}"/>'
        for x in ends
    )


def rate_plot(history: Sequence[StepRecord], summary: Summary, width: float = 960) -> str:
    """The learning rate: as scheduled, and after what rejected steps took from it."""
    drawn = curves(history, summary, {})
    used, scheduled = drawn.rates, drawn.scheduled
    last = max(float(summary.plan.steps.planned if summary.plan else 0), 1.0)
    highest = max([y for _, y in (*used, *scheduled)], default=1.0)
    frame = Frame(width=width, height=190, x=(0, last), y=(0, highest * 1.1))
    return svg(
        width,
        190,
        "Learning rate, in edits a step",
        frame.grid(ticks(*frame.y, 4)),
        frame.steps_axis(),
        frame.line(scheduled, "scheduled"),
        frame.line(used, "rate"),
        legend(frame.left, 12, [("rate", "used"), ("scheduled", "scheduled")]),
    )


def heat_plot(heat: HeatMap, title: str, *, natural: bool = False) -> str:
    """Items down, versions across; teal where solved, orange where failed, empty where not measured."""
    columns, rows = len(heat.versions), len(heat.items)
    wide = max(3.0, min(26.0, 860 / max(columns, 1)))
    high = max(3.0, min(15.0, 900 / max(rows, 1)))
    named = high >= 10
    longest = max((len(item) for item in heat.items), default=0) if named else 0
    left = min(180.0, 14 + 6.6 * longest)
    body = []
    for number, (item, values) in enumerate(zip(heat.items, heat.values, strict=True)):
        y = 22 + number * high
        cells = "".join(_cells(values, left, y, wide, high))
        solved = sum(value is not None and value >= 1 for value in values)
        seen = sum(value is not None for value in values)
        name = printable(item)
        short = name if len(name) <= 26 else f"{name[:25]}…"
        words = label(left - 6, y + high / 2 + 4, short, anchor="end", cls="quiet") if named else ""
        body.append(f"<g><title>{escape(name)}: solved under {solved} of {seen} versions</title>{words}{cells}</g>")
    every = max(1, math.ceil(30 / wide))
    heads = "".join(
        label(left + (n + 0.5) * wide, 14, f"v{version}", anchor="middle", cls="quiet")
        for n, version in enumerate(heat.versions)
        if n % every == 0
    )
    width = left + columns * wide + 20
    return svg(width, 28 + rows * high, title, heads, *body, natural=natural)


def _cells(values: Sequence[float | None], left: float, y: float, wide: float, high: float) -> list[str]:
    """One path for each level of score: neighbours that are equal become one box."""
    boxes: dict[int, list[str]] = {}
    start = 0
    levels = [None if value is None else min(_LEVELS - 1, int(value * (_LEVELS - 1) + 0.5)) for value in values]
    gap = 1 if min(wide, high) > 6 else 0
    for n in range(1, len(levels) + 1):
        if n == len(levels) or levels[n] != levels[start] or gap:
            level = levels[start]
            if level is not None:
                across = (n - start) * wide - gap
                corner = f"M{left + start * wide:.1f} {y:.1f}"
                boxes.setdefault(level, []).append(f"{corner}h{across:.1f}v{high - gap:.1f}h-{across:.1f}z")
            start = n
    return [f'<path class="h{level}" d="{"".join(own)}"/>' for level, own in sorted(boxes.items())]
