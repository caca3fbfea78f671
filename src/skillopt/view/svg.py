"""Drawing in SVG without a plotting library: a frame with axes, and what is drawn in it.

Colours are classes: the report's style sheet sets them for light and dark, and `standalone` puts the same sheet into a
separate file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import pairwise

Point = tuple[float, float]


def package_text(name: str) -> str:
    return (resources.files("skillopt.view") / name).read_text(encoding="utf-8")


def svg(width: float, height: float, title: str, *body: str, natural: bool = False) -> str:
    """`natural`: as wide as drawn, and not as wide as the page."""
    style = f' style="width:{width:g}px"' if natural else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot"{style} viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def standalone(drawing: str) -> str:
    """The same drawing as a file that needs no page around it."""
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
    """A plot's inside in the coordinates of its values."""

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
        """Horizontal lines with their values on the left."""
        out = []
        for value in values:
            _, y = self.at(self.x[0], value)
            out.append(f'<path class="grid" d="M{self.left:g} {y:.1f}H{self.width - self.right:g}"/>')
            out.append(label(self.left - 7, y + 4, form.format(value), anchor="end"))
        return "".join(out)

    def right_labels(self, values: Sequence[float]) -> str:
        return "".join(
            label(self.width - self.right + 7, self.at(self.x[0], value)[1] + 4, f"{value:,.0f}") for value in values
        )

    def steps_axis(self) -> str:
        wanted = max(2, round((self.width - self.left - self.right) / 90))
        return "".join(
            label(self.at(value, self.y[0])[0], self.height - self.bottom + 17, f"{value:g}", anchor="middle")
            for value in ticks(*self.x, wanted, whole=True)
        )

    def line(self, points: Sequence[Point], cls: str) -> str:
        if not points:
            return ""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (self.at(*point) for point in points))
        return f'<path class="{cls}" d="M{path}"/>'

    def staircase(self, points: Sequence[Point], cls: str) -> str:
        """A value that holds until the next one."""
        return self.line(_stairs(points), cls)

    def area(self, points: Sequence[Point], cls: str) -> str:
        """What lies below such a staircase."""
        if not points:
            return ""
        corners = _stairs(points)
        floor = [(corners[-1][0], self.y[0]), (corners[0][0], self.y[0])]
        return self.line([*corners, *floor], cls)


def _stairs(points: Sequence[Point]) -> list[Point]:
    out = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        out += [(x, before), (x, y)]
    return out


def label(x: float, y: float, text: str, *, anchor: str = "start", cls: str = "") -> str:
    kind = f' class="{cls}"' if cls else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def mark(kind: str, at: Point, tooltip: str = "", size: float = 4) -> str:
    """accept ●, reject ✕, indecisive ◇, guidance ◆; `tooltip` is its tooltip."""
    x, y = at
    s = size
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
        if kind in {"score", "length-line", "rate", "scheduled"}:
            out.append(f'<path class="{kind}" d="M{x - 6:g} {y - 4:g}h14"/>')
        elif kind == "length":
            out.append(f'<path class="length" d="M{x - 6:g} {y - 9:g}h14v10h-14z"/>')
        else:
            out.append(mark(kind, (x + 1, y - 4)))
        out.append(label(x + 13, y, name))
        x += 34 + 6.3 * len(name)
    return "".join(out)
