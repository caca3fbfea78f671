"""Writes the part of a request about a package: the list of its files, the number of tasks that opened each file, and
the texts of the files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from skillopt.skill import FILE, Skill
from skillopt.skill.tokens import count_tokens
from skillopt.skill.trained import NEW_FILES, editable, is_text
from skillopt.tasks.base import Trajectory
from skillopt.training.requests.blocks import block, data_line, fair_shares, trim_middle

SHOWN = 16_000
"""The maximum number of tokens of files other than SKILL.md in one request; the middle of long files is cut out."""
MOST_LISTED = 200
"""The maximum number of files that are listed by name."""
_ABOUT = (
    "The skill is a package of files. The agent always gets SKILL.md (the block `skill`), and opens another file only "
    "when SKILL.md or the task sends it there. So what every task needs belongs in SKILL.md, and details that only "
    "some tasks need belong in a reference: SKILL.md then says in one line which file it is and when to read it. Every "
    "edit names its `file`, and its anchor is text of that file."
)
_NEW = {
    "references": "A new reference is an `add` whose `file` is a new name such as references/dates.md.",
    "scripts": "A new script is an `add` whose `file` is a new name such as scripts/check.py and whose text is the "
    "whole script.",
}


def file_schema(skill: Skill, train: Sequence[str]) -> dict[str, JsonValue] | None:
    """The schema of an edit's `file`: an existing file, or the name of a new file. None if the skill is not a
    package."""
    if not skill.is_package:
        return None
    names = editable(skill, train)
    new = [pattern for part, pattern in NEW_FILES.items() if part in train]
    if not new:
        return {"type": "string", "enum": list(names)}
    literal = [re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", name) for name in names]  # re.escape also escapes hyphens
    return {"type": "string", "pattern": f"^({'|'.join([*literal, *new])})$"}


def file_blocks(skill: Skill, train: Sequence[str], trajectories: Sequence[Trajectory] = ()) -> Iterable[str]:
    """The parts of a request about a package, besides SKILL.md; none if the skill is not a package."""
    if not skill.is_package:
        return
    yield " ".join([_ABOUT, *(rule for part, rule in _NEW.items() if part in train)])
    open_to_edits = set(editable(skill, train))
    opened = _opened(trajectories)
    rows = [_row(skill, path, path in open_to_edits, opened) for path in skill.files]
    rest = [f"({len(rows) - MOST_LISTED} more files are not listed.)"] if len(rows) > MOST_LISTED else []
    yield block("files", "\n".join([*rows[:MOST_LISTED], *rest]))
    yield from _contents(skill, [path for path in skill.others if path in open_to_edits])


def _row(skill: Skill, path: str, may_edit: bool, opened: Counter[str] | None) -> str:
    row: dict[str, str | int] = {"file": path}
    if path == FILE or is_text(skill, path):
        row["tokens"] = skill.tokens if path == FILE else count_tokens(skill.read(path) or "")
    else:
        row["bytes"] = len(skill.others[path])
    row["edits"] = "allowed" if may_edit else "not allowed"
    if opened is not None and path != FILE:
        row["opened_in"] = f"{opened[path]} of {opened['']} tasks"
    return data_line(row)


def _opened(trajectories: Sequence[Trajectory]) -> Counter[str] | None:
    """The number of tasks that opened each file; under the empty name, the number of all tasks. None if no task
    opened a file: the target may not report opened files."""
    tasks = Counter(path for trajectory in trajectories for path in set(trajectory.opened))
    return tasks + Counter({"": len(trajectories)}) if tasks else None


def _contents(skill: Skill, paths: Sequence[str]) -> Iterable[str]:
    texts = {path: skill.read(path) or "" for path in sorted(paths)}
    shares = fair_shares([count_tokens(text) for text in texts.values()], SHOWN)
    for (path, text), share in zip(texts.items(), shares, strict=True):
        yield block("file", trim_middle(text, share), name=json.dumps(path))
