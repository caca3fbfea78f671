"""A badge for a README: the verdict on a skill as a small SVG."""

from __future__ import annotations

from html import escape

from skillopt.measure.suite import Outcome
from skillopt.report.text import printable

_COLOURS = {"better": "#2e7d32", "no worse": "#2e7d32", "worse": "#b3261e", "cannot tell": "#8a6100"}
_GREY = "#5f6368"


def badge(outcome: Outcome) -> str:
    """`skill | better +0.12`."""
    result = outcome.result
    figure = f" {result['difference']:+.2f}" if result and not result["same_text"] else ""
    return _drawn("skill", f"{outcome.status}{figure}", _COLOURS.get(outcome.status, _GREY))


def _drawn(left: str, right: str, colour: str) -> str:
    left, right = printable(left), printable(right)
    first, second = 12 + round(6.6 * len(left)), 12 + round(6.6 * len(right))
    width = first + second
    style = 'fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" '
        f'aria-label="{escape(left)}: {escape(right)}"><title>{escape(left)}: {escape(right)}</title>'
        f'<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{first}" height="20" fill="#3c4043"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="{colour}"/></g>'
        f'<g {style}><text x="{first / 2:g}" y="14">{escape(left)}</text>'
        f'<text x="{first + second / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )
