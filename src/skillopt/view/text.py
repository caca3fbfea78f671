"""Makes text from models, tasks and endpoints safe to show, and formats numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def printable(text: str) -> str:
    """The text with control characters and direction marks made visible, so they cannot move the cursor or hide
    text. Line breaks and tabs stay as they are."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else f"\\u{ord(c):04x}" for c in text)


def score(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def ranged(value: float | None, interval: Sequence[float] | None) -> str:
    """A score with its 95 % interval: `0.65 [0.50–0.78]`."""
    return score(value) + (f" [{interval[0]:.2f}–{interval[1]:.2f}]" if value is not None and interval else "")


def chance(p: float) -> str:
    """A probability that is never shown as zero: `p = 0.034`, `p < 0.001`."""
    return "p < 0.001" if p < 0.0005 else f"p = {p:.3f}"


def dollars(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.2f}" if value >= 0.01 or value == 0 else f"${value:.4f}"


def duration(seconds: float) -> str:
    """A duration as text: `5.9 s`, `12 min`, `3.4 h`."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clipped(text: str, longest: int) -> str:
    """A text; if it is longer than `longest`, only its beginning and its end."""
    if len(text) <= longest:
        return text
    return f"{text[: longest * 2 // 3]} … {text[-longest // 3 :]}"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 edit`, `2 edits`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
