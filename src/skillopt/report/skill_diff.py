"""Differences between two skills, line by line."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from skillopt.skill import Skill


@dataclass(frozen=True, kw_only=True)
class DiffLine:
    kind: Literal["same", "added", "removed", "gap"]
    """gap: lines that are left out here."""
    text: str = ""

    @property
    def mark(self) -> str:
        return {"same": " ", "added": "+", "removed": "-", "gap": "…"}[self.kind]


def diff_skills(before: Skill, after: Skill, context: int = 2) -> list[DiffLine]:
    """What changed, with some lines of context; empty if nothing did."""
    old, new = before.text.splitlines(), after.text.splitlines()
    lines: list[DiffLine] = []
    end = 0
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(context):
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
