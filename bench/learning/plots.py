"""Draws docs/images/results-*.svg: score against rollouts, a chart for each set and target, a line for each method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from skillopt.record.files import write_atomic
from skillopt.view.svg import Frame, label, svg, ticks

from .cells import WITHOUT
from .result import CellResult

COLOURS = {"ours": "#0f766e", "gepa": "#c2410c"}
OTHERS = ("#2563eb", "#a16207", "#be185d", "#4d7c0f")
STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#6b7280}.grid{stroke:#9ca3af55;fill:none}"
    ".line{fill:none;stroke-width:2.2}</style>"
)
Curve = Sequence[tuple[int, float]]


def write_plots(results: Iterable[CellResult], folder: Path) -> list[Path]:
    """Write a picture for each optimizer, and return the paths."""
    found: dict[str, dict[tuple[str, str], dict[str, list[Curve]]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        cell = result.cell
        if result.curve and not result.error and cell.method not in WITHOUT:
            found[cell.optimizer][cell.set, cell.target].setdefault(cell.method, []).append(result.curve)
    written = []
    for optimizer, panels in sorted(found.items()):
        path = folder / f"results-{optimizer}.svg"
        write_atomic(path, drawing(panels, optimizer) + "\n")
        written.append(path)
    return written


def drawing(panels: dict[tuple[str, str], dict[str, list[Curve]]], optimizer: str) -> str:
    """Draw the charts of one optimizer, in rows of three."""
    wide, tall, across = 310.0, 210.0, min(3, len(panels))
    names = sorted({method for methods in panels.values() for method in methods}, key=_place)
    body = [STYLE]
    for n, ((name, target), methods) in enumerate(sorted(panels.items())):
        x, y = (n % across) * wide, 26 + (n // across) * tall
        inner = _panel(f"{name}, {target}", methods, names, wide, tall)
        body.append(f'<g transform="translate({x:g} {y:g})">{inner}</g>')
    x = 44.0
    for name in names:
        body.append(f'<path class="line" stroke="{_colour(name, names)}" d="M{x:g} 14h16"/>{label(x + 21, 18, name)}')
        x += 50 + 7 * len(name)
    rows = -(-len(panels) // across)
    return svg(wide * across, 26 + rows * tall, f"Validation score against rollouts, optimizer: {optimizer}", *body)


def _panel(title: str, methods: dict[str, list[Curve]], names: list[str], wide: float, tall: float) -> str:
    last = max(paid for curves in methods.values() for curve in curves for paid, _ in curve)
    frame = Frame(width=wide, height=tall, x=(0, float(last)), y=(0, 1), right=16)
    lines = []
    for method in sorted(methods, key=_place):
        points = averaged(methods[method])
        path = frame.staircase([(float(paid), score) for paid, score in points], "line")
        lines.append(path.replace("/>", f' stroke="{_colour(method, names)}"/>'))
    return "".join([label(44, 22, title), frame.grid(ticks(0, 1, 4), "{:.2g}"), frame.steps_axis(), *lines])


def averaged(curves: Sequence[Curve]) -> list[tuple[int, float]]:
    """Return the mean curve over seeds: a point where any seed's curve changes, once all seeds have a score."""
    places = sorted({paid for curve in curves for paid, _ in curve})
    start = max(curve[0][0] for curve in curves)
    at = [place for place in places if place >= start]
    return [(place, fmean([s for paid, s in curve if paid <= place][-1] for curve in curves)) for place in at]


def _place(method: str) -> tuple[int, str]:
    order = list(COLOURS)
    return (order.index(method) if method in order else len(order), method)


def _colour(method: str, names: list[str]) -> str:
    others = [name for name in names if name not in COLOURS]
    return COLOURS.get(method) or OTHERS[others.index(method) % len(OTHERS)]
