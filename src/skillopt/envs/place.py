"""One rollout's own folders: a fresh workspace, a home, the skill's whole package, the item without its answers."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.envs.base import Item
from skillopt.envs.workspace import Start, difference
from skillopt.skill import Skill
from skillopt.skill.document import FILE

HIDDEN = {"answers", "expected", "check", "check_files"}
"""Fields of an item that an agent never sees: it would learn nothing from tasks whose answer it can read."""


@dataclass(frozen=True, kw_only=True)
class Place:
    root: Path
    workspace: Path
    home: Path
    skill: Path
    """SKILL.md, or the one document."""
    skill_dir: Path
    """The whole package."""
    item: Path

    def left(self, start: Start, most: int) -> dict[str, Any]:
        """What the rollout did to the workspace, for the journal."""
        return {"left": difference(start, self.workspace, most).plain()}


@contextmanager
def opened_place(item: Item, skill: Skill, start: Start, template: str = "") -> Iterator[Place]:
    """Fresh folders, which are removed at the end. `template` is a folder that every workspace starts with."""
    with tempfile.TemporaryDirectory(prefix="skillopt-agent-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        package = root / "skill"
        place = Place(
            root=root, workspace=root / "workspace", home=root / "home",
            skill=package / FILE, skill_dir=package, item=root / "item.json",
        )  # fmt: skip
        if template:
            shutil.copytree(template, place.workspace, symlinks=True)
        start.write_to(place.workspace)
        place.home.mkdir()
        skill.write_to(package)
        unread(package)
        shown = item.model_dump(mode="json", exclude=HIDDEN)
        place.item.write_text(json.dumps(shown, ensure_ascii=False), encoding="utf-8")
        yield place


def unread(folder: Path) -> None:
    """Mark all files as never read, so that `read_since` finds those that are."""
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (0, file.stat().st_mtime))


def read_since(folder: Path, skill: Skill) -> list[str]:
    """The package's further files that were read, where the disk keeps account of it; agents look at every SKILL.md."""
    found = []
    for name in sorted(skill.others):
        file = folder / name
        if file.is_file() and not file.is_symlink() and file.stat().st_atime > 0:
            found.append(name)
    return found
