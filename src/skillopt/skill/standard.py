"""The standard sections, which a skill gets if it begins without sections: their order, and a search for empty ones."""

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
    """The position for a new standard section: before the first section of the skill that must come after it. In the
    standard order, Examples is the last section. None if the skill has no section that must come after the new one."""
    later = (section for name in _ORDER[rank(title) + 1 :] for section in skill.find_sections(name))
    return min((section.span.start for section in later if section.level == _LEVEL), default=None)


def empty_sections(skill: Skill) -> list[Span]:
    """The spans of the standard sections that have only a heading and blank lines. Guidance does not count as a
    section's text."""
    headings = [s for title in STANDARD for s in skill.find_sections(title) if s.level == _LEVEL]
    spans = []
    for section in sorted(headings, key=lambda section: section.span.start):
        below = skill.below(section)
        end = next((r.start for r in skill.protected if below.start <= r.start < below.end), below.end)
        if not skill.text[below.start : end].partition("\n")[2].strip():
            spans.append(Span(below.start, end))
    return spans
