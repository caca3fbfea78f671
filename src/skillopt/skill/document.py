"""A skill document: Markdown text with sections and protected regions. Text is kept byte for byte."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

from skillopt.skill.tokens import count_tokens

OPEN_MARKER = "<!-- skillopt:protected slow_update -->"
CLOSE_MARKER = "<!-- /skillopt:protected -->"
MARKER = re.compile(r"<!--\s*/?\s*skillopt\s*:", re.IGNORECASE)
"""Anything that could be taken for one of our markers."""

_REGION = re.compile(f"{re.escape(OPEN_MARKER)}(?:(?!{re.escape(OPEN_MARKER)}).)*?{re.escape(CLOSE_MARKER)}", re.DOTALL)
"""From the last opening marker before a closing one: a stray marker above cannot draw other text into a region."""
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_CLOSING_MARKS = re.compile(r"(?:^| )#+$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")


@dataclass(frozen=True)
class Span:
    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Section:
    """A heading and the text below it, up to the next heading of any level."""

    title: str
    level: int
    """1 to 6; 0 for the text before the first heading."""
    span: Span


@dataclass(frozen=True)
class Skill:
    """An immutable skill document."""

    text: str = ""

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def tokens(self) -> int:
        return count_tokens(self.text)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections in order; together they cover the text without gap or overlap."""
        starts: list[tuple[int, int, str]] = []
        fence = ""
        position = 0
        for line in split_lines(self.text):
            outside, fence = not fence, _fence_after(line, fence)
            if outside and not fence and (heading := _HEADING.match(line.rstrip("\r\n"))):
                starts.append((position, len(heading[1]), (heading[2] or "").strip()))
            position += len(line)
        if not starts or starts[0][0] > 0:
            starts.insert(0, (0, 0, ""))
        ends = [start for start, _, _ in starts[1:]] + [len(self.text)]
        return tuple(
            Section(title, level, Span(start, end)) for (start, level, title), end in zip(starts, ends, strict=True)
        )

    @cached_property
    def protected(self) -> tuple[Span, ...]:
        """Regions that no edit may touch, markers included."""
        return tuple(Span(m.start(), m.end()) for m in _REGION.finditer(self.text))

    @property
    def guidance(self) -> str:
        """The slow update's guidance: the text inside the protected region, or an empty string."""
        if not self.protected:
            return ""
        region = self.text[self.protected[0].start : self.protected[0].end]
        return region.removeprefix(OPEN_MARKER).removesuffix(CLOSE_MARKER).strip("\n")

    def with_guidance(self, guidance: str) -> Skill:
        """This skill with its protected region replaced (or added at the end); the rest stays as it is."""
        if MARKER.search(guidance):
            raise ValueError("guidance must not contain a protected-region marker")
        region = f"{OPEN_MARKER}\n{guidance.strip()}\n{CLOSE_MARKER}"
        if self.protected:
            span = self.protected[0]
            return Skill(self.text[: span.start] + region + self.text[span.end :])
        gap = "" if not self.text else "\n" if self.text.endswith("\n") else "\n\n"
        return Skill(f"{self.text}{gap}{region}\n")

    def find_sections(self, title: str) -> list[Section]:
        """The sections with that title; case, `#` marks and space do not matter. Headings in guidance are none."""
        wanted = normal_title(title)
        named = [s for s in self.sections if s.level and normal_title(s.title) == wanted]
        return [s for s in named if not any(r.start <= s.span.start < r.end for r in self.protected)]


def split_lines(text: str) -> list[str]:
    """Lines with their ends. Unlike str.splitlines, only a newline ends a line, as in Markdown."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def open_fence(text: str) -> str:
    """The code fence that is still open at the end, or an empty string."""
    fence = ""
    for line in split_lines(text):
        fence = _fence_after(line, fence)
    return fence


def _fence_after(line: str, fence: str) -> str:
    """The code fence that is open after this line, where `fence` was before it."""
    mark = _FENCE.match(line.rstrip("\r\n"))
    if not mark:
        return fence
    if fence:
        return "" if mark[1].startswith(fence) and not mark[2].strip() else fence
    return "" if mark[1][0] == "`" and "`" in mark[2] else mark[1]


def bare_title(title: str) -> str:
    """A heading's text without its marks: `## Form ##` is `Form`."""
    return _CLOSING_MARKS.sub("", " ".join(title.strip().lstrip("#").split()))


def normal_title(title: str) -> str:
    return bare_title(title).casefold()
