"""Edits of a skill: add, modify, delete. Each edit is applied as a whole, or skipped with a reason; nothing is
guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from skillopt.skill.document import FILE, MARKER, Skill, Span, bare_title, normal_title, open_fence
from skillopt.skill.standard import next_section, rank
from skillopt.skill.tokens import count_tokens
from skillopt.skill.trained import PARTS, file_problem, part_of, total_tokens

Op = Literal["add", "modify", "delete"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_HALF = re.compile(r"[\ud800-\udfff]")
"""Matches half a surrogate pair, which cannot be stored in a file."""
_LIST_MARK = r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?"
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")


class DroppedText(BaseModel):
    """A line or value of the old text that the new text of a `modify` leaves out on purpose, with the reason."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str
    reason: str

    @field_validator("text", "reason")
    @classmethod
    def _storable(cls, value: str) -> str:
        return _without_halves(value)


class Edit(BaseModel):
    """One proposed edit. It has the same form in requests, replies and files."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = ""
    op: Op
    file: str = FILE
    """The file that the edit changes; an `add` may make a new file. Stored only if it is not SKILL.md."""
    section: str = ""
    """For an `add`: the section to which the text is added; it is created if it does not exist. For other edits: the
    section that contains the anchor, in case the same text occurs in several sections."""
    anchor: str = ""
    """The verbatim text that is modified or deleted; empty for `add`."""
    text: str = ""
    dropped: tuple[DroppedText, ...] = ()
    """Lines of the anchor that a `modify` leaves out, each with the reason. Stored only if there are any."""
    rationale: str = ""
    pattern: str = ""
    """The optimizer's short name for the failure's cause."""
    group: str = ""
    """The name of the edit's group: edits of one reply with the same name belong together. Stored only if not empty."""
    trajectory_ids: tuple[str, ...] = ()
    impact: float = Field(default=0.5, ge=0, le=1)
    source: str = ""
    """The analyst that proposed the edit, such as `llm/mixed`."""

    @field_validator("impact", mode="before")
    @classmethod
    def _clamp(cls, value: object) -> object:
        return float(min(1, max(0, value))) if isinstance(value, int | float) else value

    @model_serializer(mode="wrap")
    def _stored(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        stored: dict[str, Any] = handler(self)
        if stored.get("file") == FILE:
            del stored["file"]
        for name in ("dropped", "group"):
            if not stored.get(name, True):
                del stored[name]
        return stored

    @field_validator("dropped", mode="before")
    @classmethod
    def _complete(cls, value: object) -> object:
        """Remove rows of `dropped` in which the text or the reason is missing."""
        rows = value if isinstance(value, list | tuple) else ()
        return [row for row in rows if isinstance(row, DroppedText) or (isinstance(row, dict) and _names(row))]

    @field_validator("id", "file", "rationale", "pattern", "group", "source")
    @classmethod
    def _storable(cls, value: str) -> str:
        return _without_halves(value)


def _without_halves(text: str) -> str:
    """Replace half surrogate pairs, which a broken reply may contain and which cannot be stored."""
    return text.encode("utf-8", "replace").decode()


def _names(row: dict[str, object]) -> bool:
    return all(isinstance(row.get(key), str) and str(row[key]).strip() for key in ("text", "reason"))


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """Gradient clipping: the largest size of an edit, of each file and of a whole package."""

    max_edit_tokens: int = 400
    max_skill_tokens: int = 8000
    """The maximum number of tokens of the document; for a package, of SKILL.md."""
    max_file_tokens: int = 8000
    """The maximum number of tokens of each further file."""
    max_total_tokens: int = 40_000
    """The maximum number of tokens of all text files of a package."""
    train: tuple[str, ...] = PARTS
    """The parts of a package that edits may touch."""


UNLIMITED = SizeLimits(
    max_edit_tokens=1 << 40, max_skill_tokens=1 << 40, max_file_tokens=1 << 40, max_total_tokens=1 << 40
)
"""No limits, for accepted edits that are applied again."""


@dataclass(frozen=True)
class Skip:
    edit_id: str
    kind: str
    """The word by which skipped edits are counted, such as `anchor_missing` or `too_large`."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The result of applying a list of edits."""

    skill: Skill
    applied: tuple[Edit, ...] = ()
    skipped: tuple[Skip, ...] = ()


class _Unfit(Exception):  # noqa: N818
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass
class _Draft:
    """The replacements for the edits that were added so far. All spans refer to the original text."""

    skill: Skill
    replacements: list[tuple[Span, str]] = field(default_factory=list)
    new_sections: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def render(self, *, in_order: bool = True) -> str:
        """The text with all replacements. If `in_order` is true, new standard sections are put in the standard order,
        and other new sections at the end."""
        old = self.skill.text
        insertions = {span.start: text for span, text in self.replacements if span.start == span.end}
        tail = _end_of_content(self.skill, Span(0, len(old)))
        new = self.new_sections.values()
        for title, texts in sorted(new, key=lambda section: rank(section[0])) if in_order else new:
            at = self._before(title) if in_order else None
            point = tail if at is None else at
            before = insertions.get(point, "")
            gap = "\n\n" if before or (at is None and old[:tail].strip()) else ""
            insertions[point] = f"{before}{gap}## {title}\n\n{_join(texts)}"
        replacements = [(span, text) for span, text in self.replacements if span.start < span.end]
        replacements += [(Span(at, at), text + _after(old, at)) for at, text in insertions.items()]
        out, position = [], 0
        for span, written in sorted(replacements, key=lambda replacement: (replacement[0].start, replacement[0].end)):
            out += [old[position : span.start], written]
            position = span.end
        text = "".join([*out, old[position:]])
        only_crlf = "\r\n" in old and old.count("\n") == old.count("\r\n")
        return text.replace("\r\n", "\n").replace("\n", "\r\n") if only_crlf else text

    def _before(self, title: str) -> int | None:
        """The position for a new standard section: the start of the section that must come after it. None if there is
        no such section, or an edit replaces the text around this position."""
        at = next_section(self.skill, title)
        replaced = at is not None and any(span.start < at < span.end for span, _ in self.replacements)
        return None if replaced else at


def apply_edits(
    skill: Skill, edits: Iterable[Edit], limits: SizeLimits | None = None, *, in_order: bool = True
) -> Applied:
    """Apply `edits` in order. Every anchor is looked up in its file as it was before the first edit.

    If two edits touch the same text, the first is applied. Text and files that no edit touches stay the same, byte for
    byte. If edits leave a file other than SKILL.md without text, this file is removed. If `in_order` is false,
    every new section is put at the end.
    """
    builder = SkillBuilder(skill, limits or SizeLimits(), in_order=in_order)
    applied: list[Edit] = []
    skipped: list[Skip] = []
    for edit in edits:
        skip = builder.add(edit)
        if skip:
            skipped.append(skip)
        else:
            applied.append(edit)
    return Applied(skill=builder.skill, applied=tuple(applied), skipped=tuple(skipped))


class SkillBuilder:
    """Applies edits to a skill one by one, as `apply_edits` does to a list."""

    def __init__(self, skill: Skill, limits: SizeLimits, *, in_order: bool = True) -> None:
        self._in_order = in_order
        self.skill = skill
        """The skill with the edits applied so far."""
        self._before = skill
        self._limits = limits
        self._drafts: dict[str, _Draft] = {}

    def add(self, edit: Edit) -> Skip | None:
        """Apply an edit. If that is not possible, return the reason and leave the skill as it is."""
        edit = _in_script(edit)
        before, limits = self._before, self._limits
        try:
            if problem := file_problem(before, edit.file, edit.op, limits.train):
                raise _Unfit("file", problem)
            _check(edit, limits)
            draft = _place(self._drafts.get(edit.file) or _Draft(Skill(before.read(edit.file) or "")), edit)
            grown = self.skill.with_file(edit.file, draft.render(in_order=self._in_order))
            _check_size(self.skill, grown, edit.file, limits)
            _check_structure(draft, Skill(grown.read(edit.file) or ""), edit.file)
        except _Unfit as unfit:
            return Skip(edit.id, unfit.kind, str(unfit))
        self._drafts[edit.file], self.skill = draft, grown
        return None

    def add_all(self, edits: Iterable[Edit]) -> Skip | None:
        """Apply all of these edits. If one cannot be applied, return the reason and leave the skill as it is."""
        before = self.skill, dict(self._drafts)
        skip = next((skip for edit in edits if (skip := self.add(edit))), None)
        if skip:
            self.skill, self._drafts = before
        return skip


def _in_script(edit: Edit) -> Edit:
    """The edit, without its section if its file is a script: in a script, `#` begins a comment, not a heading."""
    return edit.model_copy(update={"section": ""}) if part_of(edit.file) == "scripts" else edit


def _check_size(before: Skill, grown: Skill, file: str, limits: SizeLimits) -> None:
    most = limits.max_skill_tokens if file == FILE else limits.max_file_tokens
    old, new = (skill.tokens if file == FILE else count_tokens(skill.read(file) or "") for skill in (before, grown))
    if new > max(most, old):
        what = "the skill" if file == FILE else f"'{file}'"
        raise _Unfit("skill_too_long", f"would grow {what} past {most} tokens")
    if grown.is_package and new > old and total_tokens(grown) > limits.max_total_tokens:
        raise _Unfit("skill_too_long", f"would grow the package past {limits.max_total_tokens} tokens")


def _check_structure(attempt: _Draft, grown: Skill, file: str) -> None:
    before = attempt.skill
    if _regions(grown) != _regions(before) or _markers(grown) > _markers(before):
        raise _Unfit("protected", "would break a protected region")
    if part_of(file) == "scripts":
        return
    if open_fence(grown.text) != open_fence(before.text) or _hides_heading(attempt, grown):
        raise _Unfit("structure", "would turn text around it into code")


def _check(edit: Edit, limits: SizeLimits) -> None:
    """Raise _Unfit for problems of an edit that do not depend on the document."""
    if not edit.trajectory_ids:
        raise _Unfit("no_trajectory", "cites no trajectory")
    if edit.op != "delete" and not edit.text.strip():
        raise _Unfit("empty", "has no text")
    if edit.op != "add" and not edit.anchor.strip():
        raise _Unfit("anchor_missing", "names no anchor")
    if any(_HALF.search(part) for part in (edit.anchor, *edit.trajectory_ids)):
        raise _Unfit("control_characters", "holds half a character, which cannot be written down")
    for part in (edit.section, edit.text):
        if problem := unsafe(part):
            raise _Unfit(*problem)
    if "\n" in edit.section.strip():
        raise _Unfit("section", "names a section of several lines")
    replaced = "" if edit.op == "add" else edit.anchor
    written = "" if edit.op == "delete" else f"{edit.section}\n{edit.text}" if edit.op == "add" else edit.text
    if len(written) > 100 * limits.max_edit_tokens or count_tokens(written) > limits.max_edit_tokens:
        raise _Unfit("too_large", f"is longer than {limits.max_edit_tokens} tokens")
    if part_of(edit.file) == "scripts":
        return
    if open_fence(replaced) != open_fence(written) or _open_comments(replaced) != _open_comments(written):
        raise _Unfit("structure", "would leave a code fence or comment open")


def whole_section(edit: Edit, skill: Skill) -> Edit:
    """Complete a `modify` or `delete` that names a section and no anchor: the anchor becomes the whole section with its
    subsections. A modified section keeps its heading, even if the new text does not repeat it."""
    if edit.op == "add" or edit.anchor.strip() or not edit.section.strip():
        return edit
    document = Skill(skill.read(edit.file) or "")
    sections = document.find_sections(edit.section)
    if len(sections) != 1:
        return edit
    whole = document.below(sections[0])
    anchor = document.text[whole.start : _end_of_content(document, whole)]
    heading = anchor.partition("\n")[0].rstrip()
    body = _without_own_heading(edit.text, edit.section).strip("\r\n").rstrip()
    text = f"{heading}\n\n{body}" if edit.op == "modify" and body else edit.text
    return edit.model_copy(update={"anchor": anchor, "text": text})


def unsafe(text: str) -> tuple[str, str] | None:
    """The kind of problem and the reason if a text must never be put into a document; else None."""
    if _CONTROL.search(text.replace("\r\n", "\n")):
        return "control_characters", "contains control characters"
    if MARKER.search(text):
        return "protected", "contains a protected-region marker"
    return None


def _place(draft: _Draft, edit: Edit) -> _Draft:
    """The draft with the replacement of this edit; raises _Unfit if the edit cannot be applied."""
    if edit.op == "add":
        return _place_add(draft, edit)
    spans = _find(draft.skill, edit)
    if any(span.overlaps(other) for span in spans for other, _ in draft.replacements):
        raise _Unfit("overlap", "touches text that another edit of this step changes")
    if edit.op == "modify":
        if edit.text == edit.anchor:
            raise _Unfit("no_change", "changes nothing")
        return _Draft(draft.skill, [*draft.replacements, *((span, edit.text) for span in spans)], draft.new_sections)
    [span] = spans
    return _Draft(draft.skill, [*draft.replacements, (_whole_line(draft.skill.text, span), "")], draft.new_sections)


def _place_add(draft: _Draft, edit: Edit) -> _Draft:
    skill = draft.skill
    section = next(iter(skill.find_sections(edit.section)), None) if edit.section.strip() else None
    text = _without_own_heading(edit.text, edit.section).strip("\r\n").rstrip()
    if not text:
        raise _Unfit("empty", "has no text")
    if _stands_in(text, skill.text) or any(_stands_in(text, written) for _, written in draft.replacements):
        raise _Unfit("duplicate", "is in the document already")
    if edit.section.strip() and section is None:
        key = normal_title(edit.section)
        title, texts = draft.new_sections.get(key, (bare_title(edit.section), []))
        if text in texts:
            raise _Unfit("duplicate", "is in the document already")
        return _Draft(skill, draft.replacements, {**draft.new_sections, key: (title, [*texts, text])})
    where = section.span if section else Span(0, len(skill.text))
    point = _end_of_content(skill, where)
    here = Span(point, point)
    if any(here.overlaps(other) for other, _ in draft.replacements):
        raise _Unfit("overlap", "touches text that another edit of this step changes")
    earlier = next((written for span, written in draft.replacements if span == here), "")
    others = [replacement for replacement in draft.replacements if replacement[0] != here]
    before = earlier or skill.text[where.start : point]
    return _Draft(skill, [*others, (here, earlier + _gap(before, text) + text)], draft.new_sections)


def _find(skill: Skill, edit: Edit) -> list[Span]:
    """Return the spans of the anchor: a single span, or, for a `modify` that names a section, all spans in this
    section. Raise _Unfit if the anchor does not occur verbatim outside the protected regions, or if it occurs several
    times and it is unclear which one is meant."""
    spots, at = [], skill.text.find(edit.anchor)
    while at >= 0:
        spots.append(Span(at, at + len(edit.anchor)))
        at = skill.text.find(edit.anchor, at + 1)
    if not spots:
        raise _Unfit("anchor_missing", "its anchor is not in the document")
    free = [spot for spot in spots if not any(spot.overlaps(region) for region in skill.protected)]
    if not free:
        raise _Unfit("protected", "touches a protected region")
    if len(free) > 1 and edit.section.strip():
        homes = [section.span for section in skill.find_sections(edit.section)]
        inside = [spot for spot in free if any(h.start <= spot.start and spot.end <= h.end for h in homes)]
        apart = not any(a.overlaps(b) for a, b in pairwise(inside))
        if inside and len(homes) == 1 and apart and edit.op == "modify":
            return inside
        free = inside or free
    if len(free) > 1:
        raise _Unfit("ambiguous", f"its anchor occurs {len(free)} times in the document")
    return free


def _end_of_content(skill: Skill, span: Span) -> int:
    """The position at which text is added to a span: after the last text of the span, but before a protected region in
    it."""
    end = next((r.start for r in skill.protected if span.start <= r.start < span.end), span.end)
    if not skill.text[span.start : end].strip():
        return span.start if end < span.end or not span.start else end
    return span.start + len(skill.text[span.start : end].rstrip())


def _after(text: str, point: int) -> str:
    """The line breaks that must follow an insertion to separate it from the next line."""
    if point == len(text):
        return "\n"
    return "" if text[point] in "\r\n" else "\n\n"


def _whole_line(text: str, span: Span) -> Span:
    """If the span to delete covers whole lines, extend it over the line break that would be left. If the deletion would
    bring two blank lines together, extend the span over one of these lines, too."""
    before = re.search(r"(?:\r?\n)*$", text[: span.start])
    breaks = re.findall(r"\r?\n", before[0]) if before else []
    after = text[span.end :]
    if (span.start and not breaks) or not re.match(r"\r?\n|$", after):
        return span
    if not breaks:
        following = re.match(r"(?:\r?\n)*", after)
        return Span(span.start, span.end + (following.end() if following else 0))
    take = 2 if len(breaks) > 1 and re.match(r"\r?\n\s*(\r?\n|$)|$", after) else 1
    return Span(span.start - sum(len(b) for b in breaks[-take:]), span.end)


def _without_own_heading(text: str, section: str) -> str:
    """The text without the section's heading, which models often repeat above an addition."""
    first, _, rest = text.lstrip("\r\n").partition("\n")
    repeats = first.startswith("#") and normal_title(first) == normal_title(section)
    return rest if repeats and section.strip() else text


def _gap(before: str, text: str) -> str:
    if not before.strip():
        return ""
    last = before.rstrip().rpartition("\n")[2]
    return "\n" if _LIST_ITEM.match(last) and _LIST_ITEM.match(text) else "\n\n"


def _join(texts: Sequence[str]) -> str:
    out = ""
    for text in texts:
        out += _gap(out, text) + text
    return out


def _stands_in(text: str, document: str) -> bool:
    """Does the document have this text as whole lines, with or without a list mark? `Give 1` is not in `Give 12`."""
    bare = re.escape(_LIST_ITEM.sub("", text.replace("\r\n", "\n"), count=1))
    return bool(re.search(rf"(?m)^{_LIST_MARK}{bare}[ \t]*$", document.replace("\r\n", "\n")))


def _regions(skill: Skill) -> list[str]:
    return [skill.text[region.start : region.end] for region in skill.protected]


def _markers(skill: Skill) -> int:
    return len(MARKER.findall(skill.text))


def _hides_heading(draft: _Draft, grown: Skill) -> bool:
    """Do the edits turn a heading that they do not touch into something else?"""
    old, changed = draft.skill.text, [span for span, _ in draft.replacements if span.start < span.end]
    kept: Counter[tuple[int, str]] = Counter()
    for section in draft.skill.sections:
        line_end = old.find("\n", section.span.start)
        line = Span(section.span.start, len(old) if line_end < 0 else line_end)
        if section.level and not any(line.overlaps(span) for span in changed):
            kept[section.level, section.title] += 1
    return bool(kept - Counter((section.level, section.title) for section in grown.sections))


def _open_comments(text: str) -> int:
    return text.count("<!--") - text.count("-->")
