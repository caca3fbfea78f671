"""Differences between two skills, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from skillopt.skill import FILE, Skill
from skillopt.skill.trained import PARTS, editable


@dataclass(frozen=True, kw_only=True)
class DiffLine:
    kind: Literal["same", "added", "removed", "gap", "file"]
    """`same`, `added`, `removed`: a line of text; `gap`: unchanged lines are left out here; `file`: the name of the
    file whose lines follow."""
    text: str = ""

    @property
    def mark(self) -> str:
        return {"same": " ", "added": "+", "removed": "-", "gap": "…", "file": "=="}[self.kind]


def whole_text(skill: Skill) -> str:
    """A skill as one text: its main document; for a package, also the other files that edits may change, each after a
    line with the file's name."""
    skill = skill.shown
    others = [path for path in editable(skill, PARTS) if path != FILE]
    parts = [skill.text, *(f"{file_line(path)}\n{skill.read(path)}" for path in others)]
    return "".join(part if part.endswith("\n") or not part else f"{part}\n" for part in parts) if others else skill.text


def file_line(path: str) -> str:
    """The line above a file's text, with the file's name."""
    return f"== {path}"


def diff_skills(before: Skill, after: Skill, context: int = 2) -> list[DiffLine]:
    """The changed lines, each with `context` lines before and after it; empty if nothing changed. In a package, a line
    names each changed file."""
    lines = _diff(before.shown.text, after.shown.text, context)
    if lines and (before.others or after.others):
        lines.insert(0, DiffLine(kind="file", text=FILE))
    for path in sorted({*before.others, *after.others}):
        if before.others.get(path) == after.others.get(path):
            continue
        old, new = before.read(path), after.read(path)
        gone = " (removed)" if path not in after.others else " (new)" if path not in before.others else ""
        known = None not in (old if path in before.others else "", new if path in after.others else "")
        lines.append(DiffLine(kind="file", text=f"{path}{gone}{'' if known else ' (not text)'}"))
        lines += _diff(old or "", new or "", context) if known else []
    return lines


def _diff(before: str, after: str, context: int) -> list[DiffLine]:
    old, new = before.splitlines(), after.splitlines()
    lines: list[DiffLine] = []
    end = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(context):
        if group[0][1] > end:
            lines.append(DiffLine(kind="gap"))
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [DiffLine(kind="same", text=text) for text in old[a:b]]
            else:
                lines += [DiffLine(kind="removed", text=text) for text in old[a:b]]
                lines += [DiffLine(kind="added", text=text) for text in new[c:d]]
            end = b
    return [*lines, DiffLine(kind="gap")] if lines and end < len(old) else lines
