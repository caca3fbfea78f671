"""A skill: a Markdown document with sections and protected regions, alone or at the head of a package of files.

Text is stored byte for byte. Only a run's own records contain the markers around a protected region. Targets and users
get the document without these markers (`Skill.shown`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from skillopt.skill.tokens import count_tokens

FILE = "SKILL.md"
"""The document at the head of a package."""
OPEN_MARKER = "<!-- skillopt:protected slow_update -->"
CLOSE_MARKER = "<!-- /skillopt:protected -->"
MARKER = re.compile(r"<!--\s*/?\s*skillopt\s*:", re.IGNORECASE)
"""Matches anything that looks like a marker of SkillOpt."""

_MARKERS = f"(?:{re.escape(OPEN_MARKER)}|{re.escape(CLOSE_MARKER)})"
_NOT_SHOWN = re.compile(rf"^[ \t]*{_MARKERS}[ \t]*(?:\r?\n|\Z)|{_MARKERS}", re.MULTILINE)
"""Matches a marker, or its whole line if nothing else is on that line."""
_REGION = re.compile(f"{re.escape(OPEN_MARKER)}(?:(?!{re.escape(OPEN_MARKER)}).)*?{re.escape(CLOSE_MARKER)}", re.DOTALL)
"""Matches a protected region. A stray opening marker above a region does not protect the text below it."""
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_CLOSING_MARKS = re.compile(r"(?:^| )#+$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_MARKED = re.compile(r"^ {0,3}(?:#|```|~~~).*", re.MULTILINE)
"""Matches a line that may be a heading or a fence. Only such lines are parsed, so long documents are parsed fast."""


@dataclass(frozen=True)
class Span:
    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class SkillSection:
    """A heading and the text below it, up to the next heading of any level."""

    title: str
    level: int
    """The heading's level, 1 to 6; 0 for the text before the first heading."""
    span: Span


@dataclass(frozen=True)
class Skill:
    """An immutable skill: one document, or a package of files with SKILL.md at its head."""

    text: str = ""
    """The text of the document; for a package, SKILL.md without its front matter."""
    front: str = ""
    """SKILL.md's front matter with both `---` lines, unchanged; empty if it has none."""
    others: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """The package's further files by their paths, such as `references/rules.md`. The mapping is never changed in
    place."""
    executable: frozenset[str] = frozenset()
    """The paths of the further files that are executable."""

    @property
    def is_package(self) -> bool:
        return bool(self.front or self.others)

    @property
    def files(self) -> dict[str, bytes]:
        """All files by their paths. SKILL.md comes first, with its front matter."""
        return {FILE: (self.front + self.text).encode(), **{path: self.others[path] for path in sorted(self.others)}}

    @cached_property
    def hash(self) -> str:
        """A hash of the document, or of all files of a package. Skills that may give different results have different
        hashes."""
        if not self.is_package:
            return hashlib.sha256(self.text.encode()).hexdigest()
        rows = [
            [path, hashlib.sha256(content).hexdigest(), path in self.executable]
            for path, content in sorted(self.files.items())
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    @cached_property
    def shown(self) -> Skill:
        """This skill as targets read it and as it is in `best_skill.md`: with its guidance, but without the guidance's
        markers and without standard sections that have no text."""
        from skillopt.skill.standard import empty_sections

        text = self.text
        for span in reversed(empty_sections(self)):
            rest = text[span.end :]
            text = text[: span.start] + rest if rest else text[: span.start].rstrip() + "\n"
        plain = _NOT_SHOWN.sub("", text if text.strip() else "")
        return self if plain == self.text else replace(self, text=plain)

    @cached_property
    def tokens(self) -> int:
        """The number of tokens of the document as targets get it. Other files are not counted."""
        return count_tokens(self.shown.text)

    def read(self, path: str) -> str | None:
        """The text of a file; None if the file does not exist or is not text. For SKILL.md, the front matter is left
        out."""
        if path == FILE:
            return self.text
        try:
            return self.others[path].decode("utf-8")
        except (KeyError, UnicodeDecodeError):
            return None

    def with_file(self, path: str, text: str) -> Skill:
        """This skill with one file's text replaced or added. If the text is empty, the file is removed, unless it is
        SKILL.md."""
        if path == FILE:
            return replace(self, text=text)
        others = {name: content for name, content in self.others.items() if name != path}
        if not text.strip():
            return replace(self, others=others)
        return replace(self, others={**others, path: text.encode()})

    def write_to(self, folder: Path, front: str = "") -> Path:
        """Write all files into a new or an empty folder. `front` is used as the front matter if the skill has none."""
        from skillopt.skill.folder import write_folder

        return write_folder(self, folder, front)

    @cached_property
    def sections(self) -> tuple[SkillSection, ...]:
        """The sections in order; together they cover the text without gap or overlap."""
        starts: list[tuple[int, int, str]] = []
        fence = ""
        for marked in _MARKED.finditer(self.text):
            line = marked[0].rstrip("\r")
            outside, fence = not fence, _fence_after(line, fence)
            if outside and not fence and (heading := _HEADING.match(line)):
                starts.append((marked.start(), len(heading[1]), _title(line[heading.end() :])))
        if not starts or starts[0][0] > 0:
            starts.insert(0, (0, 0, ""))
        ends = [start for start, _, _ in starts[1:]] + [len(self.text)]
        return tuple(
            SkillSection(title, level, Span(start, end))
            for (start, level, title), end in zip(starts, ends, strict=True)
        )

    @cached_property
    def protected(self) -> tuple[Span, ...]:
        """The regions that no edit may touch, markers included."""
        return tuple(Span(m.start(), m.end()) for m in _REGION.finditer(self.text))

    @property
    def guidance(self) -> str:
        """The slow update's guidance: the text inside the protected region, or an empty string."""
        if not self.protected:
            return ""
        region = self.text[self.protected[0].start : self.protected[0].end]
        return region.removeprefix(OPEN_MARKER).removesuffix(CLOSE_MARKER).strip("\n")

    def with_guidance(self, guidance: str) -> Skill:
        """This skill with new text in its protected region; if there is no such region, one is added at the end."""
        if MARKER.search(guidance):
            raise ValueError("guidance must not contain a protected-region marker")
        region = f"{OPEN_MARKER}\n{guidance.strip()}\n{CLOSE_MARKER}"
        if self.protected:
            span = self.protected[0]
            return replace(self, text=self.text[: span.start] + region + self.text[span.end :])
        gap = "" if not self.text else "\n" if self.text.endswith("\n") else "\n\n"
        return replace(self, text=f"{self.text}{gap}{region}\n")

    def find_sections(self, title: str) -> list[SkillSection]:
        """The sections with this title; case, `#` marks and spaces do not matter. Headings in guidance are ignored."""
        wanted = normal_title(title)
        named = [s for s in self.sections if s.level and normal_title(s.title) == wanted]
        return [s for s in named if not any(r.start <= s.span.start < r.end for r in self.protected)]

    def below(self, section: SkillSection) -> Span:
        """The span of a section with its subsections. A title (level 1) is treated as a section without subsections."""
        if section.level < 2:
            return section.span
        later = (s for s in self.sections if s.span.start > section.span.start and s.level <= section.level)
        return Span(section.span.start, next((s.span.start for s in later), len(self.text)))


def split_lines(text: str) -> list[str]:
    """The lines of a text with their ends. Unlike str.splitlines, only a newline ends a line, as in Markdown."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def open_fence(text: str) -> str:
    """The code fence that is still open at the end of a text; empty if none is."""
    fence = ""
    for marked in _MARKED.finditer(text):
        fence = _fence_after(marked[0], fence)
    return fence


def _title(text: str) -> str:
    """The text after a heading's marks, without closing marks: ` Form ##` is `Form`."""
    text = text.strip(" \t")
    bare = text.rstrip("#")
    return (bare if bare.endswith((" ", "\t")) else text).strip()


def _fence_after(line: str, fence: str) -> str:
    """The code fence that is open after this line; `fence` is the one that was open before this line."""
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
