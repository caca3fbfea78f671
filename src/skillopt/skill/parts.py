"""Finds the rules of a skill, and removes rules from its document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from skillopt.skill.document import CLOSE_MARKER, OPEN_MARKER, Skill, open_fence, split_lines

_ITEM = re.compile(r"(?:[-*+]|\d+[.)])[ \t]+")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")

_Range = tuple[int, int]
"""A range of lines, counted from 0; the last one is not included."""


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    """The position of the rule: `line 9` or `lines 4–6`."""
    text: str
    skill: Skill
    """The document that contains the rule."""
    lines: tuple[int, int]
    """The numbers of the rule's first and last line, counted from 1."""

    @property
    def without(self) -> Skill:
        """The document without this rule. It is made only when it is asked for, because a long document has many
        rules."""
        return without_lines(self.skill, [self.lines])


def rules(skill: Skill) -> list[Part]:
    """The rules of a skill: paragraphs, and list items with the lines that are indented below them. Headings and
    markers are not rules."""
    lines = split_lines(skill.text)
    parts = []
    for start, end in _blocks(lines):
        name = f"line {end}" if end == start + 1 else f"lines {start + 1}–{end}"
        text = "".join(lines[start:end]).strip("\r\n")
        parts.append(Part(name=name, text=text, skill=skill, lines=(start + 1, end)))
    return parts


def without_lines(skill: Skill, lines: Sequence[tuple[int, int]]) -> Skill:
    """The document without several rules. Each rule is given by the numbers of its first and last line, counted from 1.
    If a rule is between two blank lines, one of these lines is removed, too."""
    gone = {number for first, last in lines for number in range(first, last + 1)}
    kept: list[str] = []
    cut = False
    for number, line in enumerate(split_lines(skill.text), 1):
        if number in gone:
            cut = True
        elif cut and not line.strip() and (not kept or not kept[-1].strip()):
            continue
        else:
            cut = False
            kept.append(line)
    return replace(skill, text="".join(kept))


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
