"""The parts of a skill that can be taken out: rules and sections, each with the document that is left without it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from skillopt.skill.document import CLOSE_MARKER, OPEN_MARKER, Skill, open_fence, split_lines

_ITEM = re.compile(r"(?:[-*+]|\d+[.)])[ \t]+")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")

_Range = tuple[int, int]
"""Lines from the first on, up to and without the last; counted from 0."""


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    """Where it is: `line 9`, `lines 4–6`, or a section's title."""
    text: str
    skill: Skill
    """The document that it is a part of."""
    ranges: tuple[_Range, ...]

    @property
    def lines(self) -> tuple[int, int]:
        """Its first and last line, from 1."""
        return self.ranges[0][0] + 1, self.ranges[-1][1]

    @property
    def without(self) -> Skill:
        """The document with this part taken out, made when it is asked for: a long document has many parts."""
        return _left(self.skill, split_lines(self.skill.text), self.ranges)


def rules(skill: Skill) -> list[Part]:
    """Every list item, with what is indented below it, and every paragraph; headings and markers are none."""
    lines = split_lines(skill.text)
    return [_part(skill, lines, [(start, end)], _place(start, end)) for start, end in _blocks(lines)]


def sections(skill: Skill) -> list[Part]:
    """Every heading with the text below it, and the guidance of the slow update; headings without text are none."""
    lines = split_lines(skill.text)
    guided = _guidance(lines)
    parts = []
    last = 0
    for section in skill.sections:
        first, last = last, last + len(split_lines(skill.text[section.span.start : section.span.end]))
        if any(start < first < end for start, end in guided):
            continue
        ranges = list(_outside(first, last, guided))
        body = "".join(line for a, b in ranges for line in lines[a:b] if not _HEADING.match(line))
        if body.strip():
            parts.append(_part(skill, lines, ranges, section.title or "(before the first heading)"))
    return [*parts, *(_part(skill, lines, [region], "(guidance)") for region in guided)]


def without_lines(skill: Skill, lines: Sequence[tuple[int, int]]) -> Skill:
    """The document with several rules taken out at once: each by its first and last line, from 1."""
    return _left(skill, split_lines(skill.text), [(first - 1, last) for first, last in lines])


def _blocks(lines: Sequence[str]) -> Iterator[_Range]:
    start, fence = -1, ""
    for number, line in enumerate(lines):
        inside, fence = bool(fence), open_fence(fence + "\n" + line if fence else line)
        bare = line.strip()
        if inside:
            continue
        apart = not bare or _HEADING.match(line) or bare in {OPEN_MARKER, CLOSE_MARKER}
        if start >= 0 and (apart or _ITEM.match(line)):
            yield start, number
            start = -1
        if start < 0 and not apart:
            start = number
    if start >= 0:
        yield start, len(lines)


def _guidance(lines: Sequence[str]) -> list[_Range]:
    opened = [n for n, line in enumerate(lines) if line.strip() == OPEN_MARKER]
    closed = [n for n, line in enumerate(lines) if line.strip() == CLOSE_MARKER]
    return [(opened[-1], closed[-1] + 1)] if opened and closed and opened[-1] < closed[-1] else []


def _outside(first: int, last: int, regions: Sequence[_Range]) -> Iterator[_Range]:
    """What of the lines does not lie in a region."""
    for start, end in regions:
        if first < end and start < last:
            yield first, max(first, start)
            first = min(end, last)
    yield first, last


def _part(skill: Skill, lines: Sequence[str], ranges: Sequence[_Range], name: str) -> Part:
    ranges = [(start, end) for start, end in ranges if start < end]
    text = "".join(line for start, end in ranges for line in lines[start:end]).strip("\r\n")
    return Part(name=name, text=text, skill=skill, ranges=tuple(ranges))


def _left(skill: Skill, lines: Sequence[str], ranges: Sequence[_Range]) -> Skill:
    """Of two blank lines that a part leaves behind, one goes with it."""
    gone = {number for start, end in ranges for number in range(start, end)}
    kept: list[str] = []
    cut = False
    for number, line in enumerate(lines):
        if number in gone:
            cut = True
        elif cut and not line.strip() and (not kept or not kept[-1].strip()):
            continue
        else:
            cut = False
            kept.append(line)
    return replace(skill, text="".join(kept))


def _place(start: int, end: int) -> str:
    return f"line {start + 1}" if end == start + 1 else f"lines {start + 1}–{end}"
