"""Draws the charts of a run as SVG, without a plotting library.

A style sheet (plots.css) gives the parts of a chart their colours, for light and dark pages. The report contains the
style sheet; `standalone` adds it to a chart that is saved as a separate file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import pairwise

from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.view.curves import Point, curves
from skillopt.view.use import VersionUse

_VERDICTS = (("accept", "accepted"), ("reject", "rejected"), ("indecisive", "indecisive"), ("guidance", "guidance"))


def progress_plot(history: Sequence[StepRecord], summary: Summary) -> str:
    """The validation score over the steps, with every candidate that a gate measured."""
    title, width, height = "Validation score over the steps", 960.0, 340.0
    drawn = curves(history, summary, {})
    if not drawn.scores:
        return svg(width, 40, title, label(12, 24, "Nothing was measured."))
    (end, best), marks = drawn.scores[-1], drawn.marks
    planned = float(summary.plan.steps.planned if summary.plan else 0)
    tail = 0.3 + max(planned, end, 1.0) / 50  # space for the last step
    values = [score for _, score in drawn.scores] + [each.score for each in marks]
    low, high = math.floor(min(values) * 10 - 0.2) / 10, math.ceil(max(values) * 10 + 0.2) / 10
    frame = Frame(
        width=width, height=height, x=(0, max(planned, end, 1.0) + tail), y=(max(0.0, low), min(1.0, max(high, 0.2)))
    )
    seen = {each.kind for each in marks}
    return svg(
        width,
        height,
        title,
        *(frame.line([(x, frame.y[0]), (x, frame.y[1])], "epoch") for x in drawn.ends if len(drawn.ends) <= 20),
        frame.grid(ticks(*frame.y), "{:.2g}"),
        frame.steps_axis(),
        frame.staircase([*drawn.scores, (end + tail, best)], "score"),
        *(mark(each.kind, frame.at(each.x, each.score), each.said) for each in marks),
        legend(frame.left, 12, [("score", "validation"), *(pair for pair in _VERDICTS if pair[0] in seen)]),
    )


def cost_plot(versions: Sequence[VersionUse]) -> str:
    """A chart with a point for each version: its validation score against the tokens of a call. A line joins the
    versions in the order of training."""
    title, width, height = "Validation score against tokens of a call, by version", 960.0, 300.0
    if len(versions) < 2:
        return svg(width, 40, title, label(12, 24, "Only one version was measured."))
    tokens, scores = [each.use.tokens_per_call for each in versions], [each.score for each in versions]
    room = max(1.0, (max(tokens) - min(tokens)) * 0.08)
    low, high = math.floor(min(scores) * 10 - 0.2) / 10, math.ceil(max(scores) * 10 + 0.2) / 10
    frame = Frame(
        width=width,
        height=height,
        x=(max(0.0, min(tokens) - room), max(tokens) + room),
        y=(max(0.0, low), min(1.0, max(high, 0.2))),
    )
    points = list(zip(tokens, scores, strict=True))
    names = [f"v{each.version}" for each in versions]
    return svg(
        width,
        height,
        title,
        frame.grid(ticks(*frame.y), "{:.2g}"),
        frame.steps_axis(),
        frame.line(points, "score"),
        *(
            mark("accept", frame.at(*point), f"{name}: {point[1]:.2f}, {point[0]:,.0f} tokens per call")
            for name, point in zip(names, points, strict=True)
        ),
        *(
            label(frame.at(*point)[0] + 7, frame.at(*point)[1] - 7, name)
            for name, point in zip(names, points, strict=True)
        ),
    )


def package_text(name: str) -> str:
    return (resources.files("skillopt.view") / name).read_text(encoding="utf-8")


def svg(width: float, height: float, title: str, *body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def standalone(drawing: str) -> str:
    """A chart as the text of a separate file, with the style sheet inside."""
    start = drawing.index(">") + 1
    return f"{drawing[:start]}<style>{package_text('plots.css')}</style>{drawing[start:]}\n"


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """About `count` round values from low to high."""
    span = max(high - low, 1e-9)
    raw = span / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 10) for n in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The inner part of a chart: turns values into positions and draws lines and axes."""

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 44
    right: float = 44
    top: float = 34
    bottom: float = 30

    def at(self, x: float, y: float) -> Point:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return (
            self.left + across * (self.width - self.left - self.right),
            self.height - self.bottom - up * (self.height - self.top - self.bottom),
        )

    def grid(self, values: Sequence[float], form: str = "{:g}") -> str:
        """Horizontal lines, each with its value on the left."""
        out = []
        for value in values:
            _, y = self.at(self.x[0], value)
            out.append(f'<path class="grid" d="M{self.left:g} {y:.1f}H{self.width - self.right:g}"/>')
            out.append(label(self.left - 7, y + 4, form.format(value), anchor="end"))
        return "".join(out)

    def steps_axis(self) -> str:
        wanted = max(2, round((self.width - self.left - self.right) / 90))
        return "".join(
            label(self.at(value, self.y[0])[0], self.height - self.bottom + 17, f"{value:g}", anchor="middle")
            for value in ticks(*self.x, wanted, whole=True)
        )

    def line(self, points: Sequence[Point], cls: str) -> str:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (self.at(*point) for point in points))
        return f'<path class="{cls}" d="M{path}"/>'

    def staircase(self, points: Sequence[Point], cls: str) -> str:
        """A line like a staircase: it keeps the value of each point until the next point."""
        corners = list(points[:1])
        for (_, before), (x, y) in pairwise(points):
            corners += [(x, before), (x, y)]
        return self.line(corners, cls)


def label(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def mark(kind: str, at: Point, tooltip: str = "") -> str:
    """A mark for a gate's decision: accept ●, reject ✕, indecisive ◇, guidance ◆."""
    (x, y), s = at, 4
    shapes = {
        "accept": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{s:g}"/>',
        "reject": f'<path d="M{x - s:.1f} {y - s:.1f}l{2 * s:g} {2 * s:g}m0 {-2 * s:g}l{-2 * s:g} {2 * s:g}"/>',
    }
    diamond = f'<path d="M{x:.1f} {y - s - 1:.1f}l{s + 1:g} {s + 1:g}l{-s - 1:g} {s + 1:g}l{-s - 1:g} {-s - 1:g}z"/>'
    title = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return f'<g class="mark {kind}">{title}{shapes.get(kind, diamond)}</g>'


def legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> str:
    """Marks and lines with their names, from left to right."""
    out = []
    for kind, name in entries:
        line = f'<path class="{kind}" d="M{x - 6:g} {y - 4:g}h14"/>'
        out.append(line if kind == "score" else mark(kind, (x + 1, y - 4)))
        out.append(label(x + 13, y, name))
        x += 34 + 6.3 * len(name)
    return "".join(out)
