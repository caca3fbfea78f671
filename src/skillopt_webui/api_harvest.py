"""Answers requests about the review of harvested tasks: lists the tasks, records a person's decisions, and writes the
tasks files.

The page never runs a check that is a command; only `skillopt harvest review` does.
"""

from __future__ import annotations

from pathlib import Path

from skillopt.errors import UserError
from skillopt.record.base import Record
from skillopt.record.directory import RunDirectory
from skillopt_harvest.dialog import edited
from skillopt_harvest.records import ReviewedTask, TaskDecision
from skillopt_harvest.review import decide, finish, list_tasks
from skillopt_webui.answers import Body, Call, Routes
from skillopt_webui.places import NotThereError, fits, readable, shown
from skillopt_webui.settings import PageSettings

routes = Routes()
HARVESTS = "/api/harvests"
_SHOWN = 3
"""The maximum number of occurrences of a task that the page shows."""


class HarvestRow(Record):
    folder: str
    waiting: int
    """The number of rules that nobody has decided on."""
    tasks: int


class HarvestList(Record):
    rows: list[HarvestRow]


class TaskCard(ReviewedTask):
    sessions: int


class HarvestPage(Record):
    folder: str
    tasks: list[TaskCard]


class WrittenFile(Record):
    path: str
    config: str
    tasks: int
    split: tuple[str, ...]


class WrittenFiles(Record):
    files: list[WrittenFile]


class HarvestBody(Body):
    folder: str = ""


class HarvestDecision(HarvestBody):
    task: str = ""
    action: str = ""
    """The decision: `keep`, `drop`, `merge` or `edit`."""
    into: str = ""
    text: str = ""
    """For `edit`: `rule=…`, `instruction=…`, or the kind and value of a check, such as `contains=pnpm`."""


class FinishBody(HarvestBody):
    unreviewed: bool = False
    skill: str = ""


@routes.read(HARVESTS)
def harvests(call: Call[Body]) -> HarvestList:
    """The harvests in folders that are one or two levels below the working folder."""
    root, rows = call.settings.workspace, []
    for path in sorted([*root.glob("*/tasks.json"), *root.glob("*/*/tasks.json")]):
        folder = shown(call.settings, path.parent)
        if _is_harvest(call.settings, path.parent):
            tasks = list_tasks(path.parent, trials=False)
            waiting = sum(each.status == "rule" for each in tasks)
            rows.append(HarvestRow(folder=folder, waiting=waiting, tasks=len(tasks)))
    return HarvestList(rows=rows)


@routes.read(HARVESTS + "/tasks")
def tasks(call: Call[Body]) -> HarvestPage:
    return _page(call.settings, call.args.get("folder", ""))


@routes.change(HARVESTS + "/decide", HarvestDecision)
def decision(call: Call[HarvestDecision]) -> HarvestPage:
    wish = call.wish
    decide(_find(call.settings, wish.folder), _decision(wish))
    return _page(call.settings, wish.folder)


@routes.change(HARVESTS + "/finish", FinishBody)
def write_files(call: Call[FinishBody]) -> WrittenFiles:
    """Write the tasks files. They contain the tasks that were kept; with `unreviewed`, also the rules that nobody has
    decided on."""
    settings, wish = call.settings, call.wish
    skill = settings.workspace / wish.skill if wish.skill else None
    if skill and not (skill.exists() and fits(skill, readable(settings))):
        raise NotThereError(f"skill: no file or folder '{wish.skill}' under {settings.reach}")
    written = finish(_find(settings, wish.folder), skill=skill, unreviewed=wish.unreviewed)
    return WrittenFiles(
        files=[
            WrittenFile(
                path=shown(settings, file.path), config=shown(settings, file.config), tasks=file.tasks, split=file.split
            )
            for file in written
        ]
    )


def _decision(wish: HarvestDecision) -> TaskDecision:
    if wish.action == "edit":
        return edited(f"{wish.task}.{wish.text}")
    if wish.action == "merge":
        return TaskDecision(task=wish.task, action="merge", into=wish.into)
    if wish.action in {"keep", "drop"}:
        return TaskDecision(task=wish.task, action="keep" if wish.action == "keep" else "drop")
    raise UserError(f"action: '{wish.action}' must be 'keep', 'drop', 'merge' or 'edit'")


def _is_harvest(settings: PageSettings, folder: Path) -> bool:
    files = ("state.json", "corrections.jsonl")
    return (
        fits(folder, readable(settings))
        and all((folder / name).is_file() for name in files)
        and not RunDirectory(folder).irregular()
    )


def _find(settings: PageSettings, name: str) -> Path:
    folder = settings.workspace / name
    if not name or not _is_harvest(settings, folder):
        raise NotThereError(f"no harvest '{name}' under {settings.reach}")
    return folder


def _page(settings: PageSettings, name: str) -> HarvestPage:
    folder = _find(settings, name)
    return HarvestPage(folder=shown(settings, folder), tasks=[_card(each) for each in list_tasks(folder, run=False)])


def _card(each: ReviewedTask) -> TaskCard:
    task = each.task.model_copy(update={"occurrences": each.task.occurrences[:_SHOWN]})
    return TaskCard(task=task, status=each.status, trials=each.trials, sessions=each.task.sessions)
