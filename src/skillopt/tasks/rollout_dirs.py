"""The files of one rollout: a fresh workspace, a home folder, the skill's whole package, and the item without
answers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skillopt.skill import Skill
from skillopt.skill.document import FILE
from skillopt.tasks.base import Item
from skillopt.tasks.sandbox import temporary_folder
from skillopt.tasks.workspace import WorkedEpisode, WorkspaceStart, difference


@dataclass(frozen=True, kw_only=True)
class RolloutDirs:
    root: Path
    workspace: Path
    home: Path
    skill: Path
    """The skill's document, SKILL.md."""
    skill_dir: Path
    """The folder with the skill's whole package."""
    item: Path

    def with_diff(self, episode: WorkedEpisode, start: WorkspaceStart, most: int) -> WorkedEpisode:
        """The episode with its changes to the files of the workspace."""
        return episode.model_copy(update=vars(difference(start, self.workspace, most)))


@contextmanager
def rollout_dirs(item: Item, skill: Skill, start: WorkspaceStart, template: str = "") -> Iterator[RolloutDirs]:
    """Make the folders of a rollout; remove them at the end. `template` is a folder that is copied into the
    workspace."""
    with temporary_folder("skillopt-agent-") as root:
        package = root / "skill"
        dirs = RolloutDirs(
            root=root, workspace=root / "workspace", home=root / "home",
            skill=package / FILE, skill_dir=package, item=root / "item.json",
        )  # fmt: skip
        if template:
            shutil.copytree(template, dirs.workspace, symlinks=True)
        start.write_to(dirs.workspace)
        dirs.home.mkdir()
        skill.write_to(package)
        unread(package)
        shown = item.for_agent().model_dump(mode="json")
        dirs.item.write_text(json.dumps(shown, ensure_ascii=False), encoding="utf-8")
        yield dirs


def unread(folder: Path) -> None:
    """Mark all files of a folder as never read, so `files_read` finds those that are read later."""
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (0, file.stat().st_mtime))


def files_read(folder: Path, skill: Skill) -> list[str]:
    """The package's files that were read, if the disk records access times. SKILL.md is left out, because agents always
    read it."""
    files = ((name, folder / name) for name in sorted(skill.others))
    return [name for name, file in files if file.is_file() and not file.is_symlink() and file.stat().st_atime > 0]
