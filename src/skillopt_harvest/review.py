"""Review of the mined tasks: a person decides on each task. Before that, the task's check is tried on answers from the
sessions.

A terminal or a page needs only `list_tasks` and `decide`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from skillopt.config import EnvConfig
from skillopt.errors import SkillOptError, UserError
from skillopt.record.files import append_jsonl
from skillopt.tasks.base import SPLITS, Item, Score, Scorer
from skillopt.tasks.scorers import open_scorer
from skillopt_harvest.harvest import HarvestFolder
from skillopt_harvest.records import CheckTrial, Correction, MinedTask, ReviewedTask, Status, TaskDecision
from skillopt_harvest.task_files import WrittenTasks, task_row, write_task_files

RUN_LATER = frozenset({"command", "file"})
"""Kinds of checks that run only in the sandbox, after a person has kept the task."""
MOST_TRIED = 5
"""The maximum number of occurrences on which a check is tried."""


def list_tasks(root: Path, *, trials: bool = True, run: bool = True) -> list[ReviewedTask]:
    """Return all tasks with the decisions so far. Checks of the kinds in `RUN_LATER` run only if `run` is true and the
    task was kept."""
    tasks, status = _decided(HarvestFolder(root))
    return [
        ReviewedTask(
            task=task,
            status=status[task.id],
            trials=tuple(
                try_check(task, each, kept=run and status[task.id] == "kept") for each in task.occurrences[:MOST_TRIED]
            )
            if trials and not task.written
            else (),
        )
        for task in tasks.values()
    ]


def decide(root: Path, decision: TaskDecision) -> None:
    """Record a decision. A later decision on the same task replaces it."""
    folder = HarvestFolder(root)
    tasks, _ = _decided(folder)
    for name in (decision.task, decision.into) if decision.action == "merge" else (decision.task,):
        if name not in tasks:
            raise UserError(f"{root}: there is no task '{name}'; there are: {', '.join(tasks) or 'none'}")
    if decision.action == "merge" and decision.task == decision.into:
        raise UserError(f"merge: '{decision.task}' cannot be merged into itself")
    append_jsonl(folder.decisions, [decision])


def finish(root: Path, *, skill: Path | None = None, unreviewed: bool = False) -> list[WrittenTasks]:
    """Write the kept tasks into tasks files. If `unreviewed` is true, also write the rules that nobody has decided
    on."""
    wanted = {"kept", "rule"} if unreviewed else {"kept"}
    tasks, status = _decided(HarvestFolder(root))
    chosen = [task for task in tasks.values() if status[task.id] in wanted]
    marked = any(status[task.id] == "rule" for task in chosen)
    return write_task_files(root, chosen, skill, marked) if chosen else []


def _decided(folder: HarvestFolder) -> tuple[dict[str, MinedTask], dict[str, Status]]:
    tasks = {task.id: task for task in folder.read_tasks().tasks}
    status: dict[str, Status] = {
        name: "kept" if task.written else "rule" if task.is_rule else "candidate" for name, task in tasks.items()
    }
    for decision in folder.read_decisions():
        if decision.task not in tasks:
            continue  # an earlier harvest grouped the corrections in a different way
        if decision.action == "merge" and decision.into in tasks:
            into, task = tasks[decision.into], tasks.pop(decision.task)
            del status[decision.task]
            joined = (*into.occurrences, *task.occurrences)
            tasks[decision.into] = into.model_copy(update={"occurrences": joined})
        elif decision.action == "edit":
            tasks[decision.task] = _edited(tasks[decision.task], decision)
            status[decision.task] = "kept"
        elif decision.action in {"keep", "drop"}:
            status[decision.task] = "kept" if decision.action == "keep" else "dropped"
    return tasks, status


def _edited(task: MinedTask, decision: TaskDecision) -> MinedTask:
    update: dict[str, object] = {"rule": decision.rule} if decision.rule else {}
    update |= {"check": decision.check} if decision.check else {}
    if decision.instruction:
        first = task.occurrences[0].model_copy(update={"instruction": decision.instruction})
        update["occurrences"] = (first, *task.occurrences[1:])
    return task.model_copy(update=update)


def try_check(task: MinedTask, each: Correction, *, kept: bool) -> CheckTrial:
    """Try a task's check on two answers of a session: the rejected answer must fail the check, and the corrected answer
    must pass it."""
    if task.check.kind == "rubric":
        return CheckTrial(reason="a judge decides")
    if task.check.kind in RUN_LATER and not kept:
        return CheckTrial(reason="runs in the sandbox, after the task was kept")
    try:
        item = Item.model_validate(task_row(task, each, group=""))
        scorer = open_scorer(EnvConfig(scoring=str(item["scoring"])))
        try:
            scorer.check({split: [item] for split in SPLITS})
            rejected = asyncio.run(_score(scorer, item, each.rejected))
            corrected = asyncio.run(_score(scorer, item, each.corrected)) if each.corrected else None
        finally:
            scorer.close()
    except (SkillOptError, ValueError) as error:
        return CheckTrial(reason=str(error)[:300])
    files = task.check.kind == "file"  # the session's files are not known: an empty folder, which must fail, is checked
    return CheckTrial(
        rejected_fails=rejected.hard < 1, corrected_passes=None if corrected is None or files else corrected.hard == 1
    )


async def _score(scorer: Scorer, item: Item, output: str) -> Score:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        return await scorer.score_files(item, output, workspace)


def review_lines(tasks: Sequence[ReviewedTask]) -> list[str]:
    """Return the lines that show the tasks on a terminal."""
    lines = []
    for each in tasks:
        task = each.task
        tried = [trial for trial in each.trials if trial.rejected_fails is not None]
        lines.append(f"{task.id}  {each.status:<9}  {task.sessions} sessions  {' '.join(task.rule.split())[:100]}")
        shown = ", ".join(task.check.values)[:120] + (
            f" and not {', '.join(task.check.unwanted)}" if task.check.unwanted else ""
        )
        lines.append(f"          check: {task.check.kind} {' '.join(shown.split())}")
        if tried:
            apart = sum(trial.tells_apart for trial in tried)
            mark = "" if apart == len(tried) else "; WRONG on the others"
            lines.append(f"          tried on the answers of {len(tried)} sessions: right on {apart}{mark}")
        lines += [f"          from {occurrence.citation}" for occurrence in task.occurrences[:3]]
    return lines
