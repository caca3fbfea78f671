"""The standard sections of a skill that begins without sections: their order, and which of them are empty."""

from __future__ import annotations

from skillopt.skill.document import Skill, Span, normal_title

STANDARD = ("General approach", "Common patterns", "Edge cases", "Output format")
_ORDER = [*map(normal_title, STANDARD), "examples"]
_LEVEL = 2


def rank(title: str) -> int:
    """The position of a standard section among new sections; other new sections come after all standard sections."""
    name = normal_title(title)
    return _ORDER.index(name) if name in _ORDER[:-1] else len(_ORDER)


def next_section(skill: Skill, title: str) -> int | None:
    """The position at which a new standard section is inserted: before a later standard section or Examples. None if
    there is none."""
    later = (section for name in _ORDER[rank(title) + 1 :] for section in skill.find_sections(name))
    return min((section.span.start for section in later if section.level == _LEVEL), default=None)


def empty_sections(skill: Skill) -> list[Span]:
    """The spans of standard sections without text: heading and blank lines. Guidance is not regarded as text of a
    section."""
    headings = [s for title in STANDARD for s in skill.find_sections(title) if s.level == _LEVEL]
    spans = []
    for section in sorted(headings, key=lambda section: section.span.start):
        below = skill.below(section)
        end = next((r.start for r in skill.protected if below.start <= r.start < below.end), below.end)
        if not skill.text[below.start : end].partition("\n")[2].strip():
            spans.append(Span(below.start, end))
    return spans
