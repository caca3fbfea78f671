"""Decides which files of a package are trained, and which new files an edit may make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from skillopt.skill.document import FILE, Skill
from skillopt.skill.tokens import count_tokens

TrainedPart = Literal["body", "references", "scripts"]
PARTS: tuple[TrainedPart, ...] = ("body", "references", "scripts")
NEW_FILES: dict[str, str] = {
    "references": r"references/[a-z0-9][a-z0-9_-]{0,59}\.md",
    "scripts": r"scripts/[a-z0-9][a-z0-9_-]{0,59}\.(py|sh|js)",
}
"""The names of new files that an edit may make, as regular expressions."""
_LEGAL = re.compile(r"(?:licen[cs]e|notice|copying)(?:[._-].*)?", re.IGNORECASE)
_LONGEST = 200_000
"""The maximum number of bytes of a file that edits may change; a longer file is never edited."""


def part_of(path: str) -> TrainedPart | None:
    """The part of a package to which a file belongs: SKILL.md is the body, `scripts/` are scripts, other .md and .txt
    files and all of `references/` are references. None for assets, licences and other files, which are never edited."""
    first, _, _ = path.partition("/")
    name = path.rpartition("/")[2]
    if path == FILE:
        return "body"
    if first == "scripts" and name != path:
        return "scripts"
    if first == "assets" or _LEGAL.fullmatch(name):
        return None
    return "references" if first == "references" or name.lower().endswith((".md", ".txt")) else None


def editable(skill: Skill, parts: Iterable[str]) -> list[str]:
    """The files that may be edited if these parts are trained, SKILL.md first. If the skill is a single document, only
    this document may be edited."""
    if not skill.is_package:
        return [FILE]
    parts = set(parts)
    paths = [path for path in skill.files if part_of(path) in parts]
    return [path for path in paths if path == FILE or is_text(skill, path)]


def is_text(skill: Skill, path: str) -> bool:
    """Is this file text, and short enough for a model to edit?"""
    return len(skill.others.get(path, b"")) <= _LONGEST and skill.read(path) is not None


def file_problem(skill: Skill, path: str, op: str, parts: Sequence[str]) -> str:
    """Why an edit may not touch this file; empty if it may."""
    if path == FILE:
        return "" if "body" in parts or not skill.is_package else f"{FILE} is not trained (package.train)"
    if not skill.is_package:
        return f"names the file '{path[:80]}', and the skill is one document"
    if path in skill.others:
        trained = part_of(path) in parts
        why = "is too long, or not text" if trained else "is not trained (package.train)"
        return "" if trained and is_text(skill, path) else f"'{path}' {why}"
    return _new_file_problem(skill, path, parts) if op == "add" else f"'{path[:80]}' is not in the package"


def _new_file_problem(skill: Skill, path: str, parts: Sequence[str]) -> str:
    part = part_of(path)
    if part is None or part not in parts or not re.fullmatch(NEW_FILES.get(part, "(?!)"), path):
        return f"'{path[:80]}' cannot be a new file; {_allowed(parts)}"
    same = next((name for name in skill.others if name.casefold() == path.casefold()), "")
    return f"'{path}' differs from '{same}' only in case" if same else ""


def _allowed(parts: Sequence[str]) -> str:
    names = {"references": "references/some-name.md", "scripts": "scripts/some_name.py"}
    shown = [names[part] for part in PARTS if part in parts and part in names]
    return f"a new file is named {' or '.join(shown)}" if shown else "no new file is allowed"


def total_tokens(skill: Skill) -> int:
    """The number of tokens of all text files together, with SKILL.md. Assets and files that are too long are left
    out."""
    files = [path for path in skill.others if part_of(path) and is_text(skill, path)]
    return skill.tokens + sum(count_tokens(skill.read(path) or "") for path in files)
