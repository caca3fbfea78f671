"""Writes kept tasks as an ordinary tasks file, split by session, with a config that trains on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from skillopt.errors import UserError
from skillopt.record.base import Record
from skillopt.record.directory import safe_name
from skillopt.record.files import write_atomic, write_jsonl
from skillopt.record.run import UNREVIEWED
from skillopt.tasks.base import Json
from skillopt.tasks.check_fields import check_fields
from skillopt.tasks.splits import describe, load_split
from skillopt_harvest.adopt import is_instructions, section_of
from skillopt_harvest.records import Correction, MinedTask

SKILL_FOLDERS = tuple(
    f"{agent}/skills" for agent in (".claude", ".codex", ".agents", ".gemini", ".copilot", ".config/opencode")
)


class WrittenTasks(Record):
    """The tasks file that was written, and its config."""

    skill: str
    path: Path
    tasks: int
    split: tuple[str, ...]
    """Lines that describe the split, or the reason why there is no split yet."""
    config: Path


def write_task_files(
    root: Path, tasks: Sequence[MinedTask], skill: Path | None, unreviewed: bool
) -> list[WrittenTasks]:
    """Write a folder for each skill to which tasks belong. Tasks that belong to no installed skill are written for
    `skill`."""
    by_skill: dict[str, list[MinedTask]] = {}
    for task in tasks:
        by_skill.setdefault(task.skill if installed(task.skill) else "", []).append(task)
    return [_write(root, name, own, installed(name) or skill, unreviewed) for name, own in sorted(by_skill.items())]


def installed(name: str) -> Path | None:
    """Return the folder of the installed skill with that name. The name is only compared, never used as a path."""
    for base in (Path.cwd(), Path.home()):
        for folder in SKILL_FOLDERS:
            for path in sorted((base / folder).glob("*/SKILL.md")):
                if path.parent.name == name:
                    return path.parent
    return None


def _write(root: Path, name: str, tasks: Sequence[MinedTask], skill: Path | None, unreviewed: bool) -> WrittenTasks:
    folder = root / "skills" / safe_name(name or "default")
    data = folder / "tasks.jsonl"
    rows = list(task_rows(tasks))
    write_jsonl(data, rows)
    try:
        split = tuple(describe(load_split(data, answers=False, change="extend")))
    except UserError as error:
        split = (f"not divided yet: {error}",)
    seed = str(skill) if skill else ""
    if skill and is_instructions(skill):
        write_atomic(folder / "seed_skill.md", section_of(skill))
        seed = str(folder / "seed_skill.md")
    judged = any(row["scoring"] == "judge" for row in rows)
    about = "Each task is a request to a coding agent; its answer must keep to the rules of the project."
    marked = f" {UNREVIEWED}" if unreviewed else ""
    config = {
        "train": {"init_skill": seed, "batch_size": max(4, min(40, len(rows) // 4)), "num_epochs": 2},
        "env": {
            "benchmark": safe_name(name or "harvest"),
            "data": str(data),
            "scoring": "by_task",
            "task": about + marked,
        },
        "evaluation": {"gate": "paired"} if judged else {},
    }
    text = f"# Train: skillopt train --config {folder / 'config.yaml'} --target_model … --optimizer_model …\n"
    write_atomic(folder / "config.yaml", text + yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    return WrittenTasks(skill=name, path=data, tasks=len(rows), split=split, config=folder / "config.yaml")


def task_rows(tasks: Sequence[MinedTask]) -> Iterator[Json]:
    """Yield an item for each request of a task; equal requests of a task become one item. Items from the same session
    are in one group, so they get into the same split."""
    items: dict[tuple[str, str], list[Correction]] = {}
    by_id = {task.id: task for task in tasks}
    for task in tasks:
        for each in task.occurrences:
            question = " ".join((each.instruction or each.request).casefold().split())
            items.setdefault((task.id, question), []).append(each)
    groups = _groups([[f"{c.source}:{c.session}" for c in members] for members in items.values()])
    for ((task_id, _), members), name in zip(items.items(), groups, strict=True):
        yield task_row(by_id[task_id], members[0], group=name, count=len(members))


def _groups(session_lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the name of a group for each item. Items that share a session get the same name."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for sessions in session_lists:
        for session in sessions[1:]:
            parent[root(session)] = root(sessions[0])
    return [root(sessions[0]) for sessions in session_lists]


def task_row(task: MinedTask, each: Correction, *, group: str, count: int = 1) -> Json:
    """Return one item of the tasks file. The item's id contains the session and the line numbers of the correction."""
    row: Json = {
        "id": f"{task.id}@{each.citation}",
        "question": each.instruction or each.request,
        "type": task.id if not task.written else "",
        "group": group,
        "count": count,
        "rule": task.rule,
    }
    row |= {"context": each.context} if each.context else {}
    return row | check_fields(task.check)
