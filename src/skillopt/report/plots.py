"""Small plots as SVG, without a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 240, 48, 12, 28, 32


def line_plot(
    title: str, points: Sequence[tuple[float, float]], *, marks: Sequence[tuple[float, float, str]] = ()
) -> str:
    """A line through `points`, with coloured marks `(x, y, colour)` on it."""
    everything = [*points, *[(x, y) for x, y, _ in marks]] or [(0.0, 0.0)]
    low_x, high_x = min(x for x, _ in everything), max(x for x, _ in everything)
    low_y, high_y = 0.0, max(1.0, *(y for _, y in everything))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        up = (y - low_y) / (high_y - low_y)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    dots = "".join(
        f'<circle cx="{place(x, y)[0]:.1f}" cy="{place(x, y)[1]:.1f}" r="4" fill="{escape(colour)}"/>'
        for x, y, colour in marks
    )
    grid = "".join(
        _grid_line(low_y + share * (high_y - low_y), place(low_x, low_y + share * (high_y - low_y))[1])
        for share in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="currentColor">'
        f'<title>{escape(title)}</title><text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>{grid}'
        f'<text x="{LEFT}" y="{HEIGHT - 10}">step {low_x:g}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">step {high_x:g}</text>'
        f'<polyline points="{path}" fill="none" stroke="#2563eb" stroke-width="2"/>{dots}</svg>'
    )


def _grid_line(value: float, y: float) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity="0.15"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
    )
