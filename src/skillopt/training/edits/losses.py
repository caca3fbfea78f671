"""Finds the lines that a `modify` of several lines would lose from the text that it replaces.

A line of the anchor is kept if it is in the new text, or if a new line (or two new lines in a row) says the same. To
say the same, the new line must have all numbers, quoted strings and code of the old line, a negation if the old line
has one, and three quarters of its other words. So lines may be moved, joined, split and lightly reworded, but a summary
loses lines.

A task with its reply is treated as one line. If an edit drops a line on purpose, it names the line and the reason
(`Edit.dropped`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from skillopt.skill import Edit
from skillopt.skill.trained import part_of
from skillopt.training.edits.similarity import NEGATIONS, content_words, quotations

KEPT = 0.75
"""A new line says the same as an old sentence only if it has at least this share of the sentence's words."""
SHORTEST_NAME = 12
"""An edit may name a line by its beginning, if the beginning has at least this many characters."""
MOST_LISTED = 20
"""The maximum number of lost lines in a request."""
LONGEST_LISTED = 120
"""The maximum number of characters of a lost line in a request."""
_MARK = re.compile(r"\s*(?:(?:[-*+>]|#{1,6}|\d+[.)])\s+)*")
"""List marks, quote marks and heading marks at the start of a line."""
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+(?=\S)")
_SIGN = re.compile(r"(?<=\d)\s*([-−+*×x/÷=])\s*(?=\d)")
"""A sign of a calculation between two numbers."""
_TASK = re.compile(r"(?:task|question|input)\s*:", re.IGNORECASE)
_REPLY = re.compile(r"(?:reply|answer|output)\s*:", re.IGNORECASE)


class _Passage:
    """A sentence, a line or two lines, with the words, numbers and quotations that must not get lost."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> set[str]:
        text = _SIGN.sub(r" \1 ", self.text)  # `49-3=46` and `49 - 3 = 46` are the same
        return {word for word in content_words(text) if any(c.isalnum() for c in word) and word[0] != "`"}

    @cached_property
    def quotations(self) -> set[str]:
        return quotations(self.text)

    @cached_property
    def numbers(self) -> set[str]:
        return {word for word in self.words if any(c.isdigit() for c in word)}

    def is_in(self, other: _Passage) -> bool:
        """True if another passage says the same."""
        plain = self.words - self.numbers - NEGATIONS
        return (
            self.numbers <= other.numbers
            and all(quotation in other.text for quotation in self.quotations)
            and bool(other.words & NEGATIONS or not self.words & NEGATIONS)
            and len(plain & other.words) >= KEPT * len(plain)
        )


def lost_lines(edit: Edit) -> dict[str, str]:
    """The lines that an edit removes from a document, each with the reason that the edit gives; the reason is empty if
    the edit does not name the line.

    A `delete` removes all lines of its anchor, and its rationale is the reason. Edits of scripts and a `modify` of a
    single line are not examined.
    """
    before = _lines(edit.anchor)
    if edit.op == "delete":
        return dict.fromkeys(before, edit.rationale or edit.pattern or "deleted")
    if edit.op == "add" or part_of(edit.file) == "scripts" or len(before) < 2:
        return {}
    after = _lines(edit.text)
    written = [line for line in after if line not in before]
    new = [*map(_Passage, written), *(_Passage(f"{a} {b}") for a, b in pairwise(written))]
    gone = [line for line in before if line not in after and not _is_in(line, new) and not _is_split(line, written)]
    return {line: _reason(line, new, edit) for line in gone}


def unnamed_losses(edit: Edit) -> list[str]:
    """The lines that an edit would lose although it does not name them as dropped."""
    return [line for line, reason in lost_lines(edit).items() if not reason]


def loss_problem(lines: Sequence[str]) -> str:
    """A message to the writer of an edit, who must keep the lines or name them as dropped."""
    listed = "; ".join(f"“{line[:LONGEST_LISTED]}”" for line in lines[:MOST_LISTED])
    more = f"; and {len(lines) - MOST_LISTED} more" if len(lines) > MOST_LISTED else ""
    return f"loses what its anchor has: keep it in `text`, or name it in `dropped` with the reason: {listed}{more}"


def _is_in(line: str, passages: Sequence[_Passage]) -> bool:
    """True if each sentence of a line is in one of these passages. A task with its reply is not split into
    sentences."""
    sentences = [line] if _TASK.match(line) else _SENTENCE_END.split(line)
    return all(any(map(_Passage(each).is_in, passages)) for each in filter(_says_something, sentences))


def _is_split(line: str, written: Sequence[str]) -> bool:
    """True if a line of a lookup table was split into lines of the new text, such as `a, b = x` into `a = x` and `b =
    x`."""
    names, equals, value = line.partition(" = ")
    entries = [_Passage(f"{name} = {value}") for name in names.split(",")] if equals else []
    return bool(entries) and all(any(entry.is_in(_Passage(other)) for other in written) for entry in entries)


def _reason(line: str, new: Sequence[_Passage], edit: Edit) -> str:
    """The reason that the edit gives for dropping a line; empty if it gives none. The reason is in the entry of
    `dropped` that quotes the whole line, the beginning of the line, or the part of the line that the new text lacks."""
    for row in edit.dropped:
        name = next(iter(_lines(row.text)), "").rstrip(" .…")
        begins = len(name) >= SHORTEST_NAME and line.startswith(name)
        if begins or _is_in(line, [_Passage(f"{passage.text} {row.text}") for passage in (_Passage(""), *new)]):
            return row.reason
    return ""


def _says_something(text: str) -> bool:
    return any(map(str.isalnum, text))


def _lines(text: str) -> list[str]:
    """The lines of a text that say something, each once, without list marks. A reply, which ends at the next blank
    line or the next task, is joined to the line of its task."""
    lines: list[str] = []
    in_reply = False
    for line in (_MARK.sub("", line, count=1).strip() for line in text.splitlines()):
        begins = bool(lines and _TASK.match(lines[-1]) and _REPLY.match(line))
        in_reply = begins or (in_reply and bool(line) and not _TASK.match(line))
        if in_reply:
            lines[-1] += f" {line}"
        elif _says_something(line):
            lines.append(line)
    return list(dict.fromkeys(lines))
