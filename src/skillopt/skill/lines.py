"""Which lines of two texts match, in time that grows with their length."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import pairwise

MOST_PAIRS = 1_000_000
"""Texts with more pairs of lines than this (two of 1,000 lines have as many) are first divided."""

_Area = tuple[int, int, int, int]
"""From and up to which line of one text, and of the other."""


class LineMatcher(SequenceMatcher[str]):
    """A SequenceMatcher for lines that divides long texts at the lines that both of them have once."""

    def __init__(self, a: Sequence[str], b: Sequence[str]) -> None:
        super().__init__(None, a, b, autojunk=False)
        self._texts = a, b

    def get_matching_blocks(self) -> list[Match]:
        a, b = self._texts
        if len(a) * len(b) <= MOST_PAIRS:
            return super().get_matching_blocks()
        return [*_joined(sorted(_matches(a, b))), Match(len(a), len(b), 0)]


def _matches(a: Sequence[str], b: Sequence[str]) -> Iterator[Match]:
    areas: list[_Area] = [(0, len(a), 0, len(b))]
    while areas:
        left, right, top, bottom = area = areas.pop()
        while left < right and top < bottom and a[left] == b[top]:
            left, top = left + 1, top + 1
        yield Match(area[0], area[2], left - area[0])
        while left < right and top < bottom and a[right - 1] == b[bottom - 1]:
            right, bottom = right - 1, bottom - 1
        yield Match(right, bottom, area[1] - right)
        if (right - left) * (bottom - top) <= MOST_PAIRS:
            for match in SequenceMatcher(None, a[left:right], b[top:bottom], autojunk=False).get_matching_blocks():
                yield Match(left + match.a, top + match.b, match.size)
        elif anchors := _anchors(a, b, (left, right, top, bottom)):
            corners = [(left, top), *anchors, (right, bottom)]
            areas += [(i, k, j, m) for (i, j), (k, m) in pairwise(corners)]


def _anchors(a: Sequence[str], b: Sequence[str], area: _Area) -> list[tuple[int, int]]:
    """Lines that each text has once in this area: the most of them that are in the same order in both."""
    left, right, top, bottom = area
    counts, others = Counter(a[left:right]), Counter(b[top:bottom])
    spots = {line: at for at, line in enumerate(b[top:bottom], top) if counts[line] == others[line] == 1}
    ends: list[int] = []  # of the rows of each length, the lowest place in b that one ends with
    newest: list[int] = []  # and the number of that row in `rows`
    rows: list[tuple[int, int, int]] = []  # a place in a and in b, and the number of the row that it continues
    for at in range(left, right):
        if (spot := spots.get(a[at])) is None:
            continue
        length = bisect(ends, spot)
        rows.append((at, spot, newest[length - 1] if length else -1))
        ends[length : length + 1], newest[length : length + 1] = [spot], [len(rows) - 1]
    pairs, row = [], newest[-1] if newest else -1
    while row >= 0:
        pairs.append(rows[row][:2])
        row = rows[row][2]
    return pairs[::-1]


def _joined(matches: Iterable[Match]) -> Iterator[Match]:
    """Neighbours as one, without empty ones."""
    last = Match(0, 0, 0)
    for match in matches:
        if (match.a, match.b) == (last.a + last.size, last.b + last.size):
            last = Match(last.a, last.b, last.size + match.size)
        elif match.size:
            if last.size:
                yield last
            last = match
    if last.size:
        yield last
