"""Review of tasks on the terminal. The user decides with command-line options, or answers a question about each
task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from skillopt.errors import UserError
from skillopt.tasks.check_fields import CheckKind, MinedCheck
from skillopt_harvest.records import ReviewedTask, TaskDecision
from skillopt_harvest.review import decide, list_tasks, review_lines


def decisions_of(
    root: Path, keep: Sequence[str], drop: Sequence[str], edit: Sequence[str], merge: Sequence[str]
) -> Iterator[TaskDecision]:
    """Yield the decisions that the options name: first all merges, then all edits, then the rest."""
    for text in merge:
        task, _, into = text.partition("=")
        yield TaskDecision(task=task, action="merge", into=into)
    for text in edit:
        yield edited(text)
    for task in keep:
        if task == "rules":
            undecided = (each.task.id for each in list_tasks(root, trials=False) if each.status == "rule")
            yield from (TaskDecision(task=name, action="keep") for name in undecided)
        else:
            yield TaskDecision(task=task, action="keep")
    yield from (TaskDecision(task=task, action="drop") for task in drop)


def edited(text: str) -> TaskDecision:
    """Parse an edit: `ID.rule=…`, `ID.instruction=…`, or `ID.KIND=…` for a new check of this kind, such as
    `ID.contains=a|b`."""
    name, equals, value = text.partition("=")
    task, dot, field = name.rpartition(".")
    kinds = get_args(CheckKind)
    if not equals or not dot or field not in {"rule", "instruction", *kinds}:
        raise UserError(f"--edit: '{text}' must be ID.FIELD=TEXT; fields are: rule, instruction, {', '.join(kinds)}")
    if field == "rule":
        return TaskDecision(task=task, action="edit", rule=value)
    if field == "instruction":
        return TaskDecision(task=task, action="edit", instruction=value)
    values = (
        tuple(value.split("|"))
        if field in {"exact", "contains"}
        else tuple(value.split())
        if field == "command"
        else (value,)
    )
    values = tuple(value.split("|", 1)) if field == "file" else values
    return TaskDecision(task=task, action="edit", check=MinedCheck.model_validate({"kind": field, "values": values}))


def review_dialog(root: Path, show: Callable[[str], None], ask: Callable[[str], str]) -> None:
    """Ask the user about each undecided task. Rules (tasks from at least two sessions) come before weak suggestions."""
    tasks = [each for each in list_tasks(root) if each.status in {"rule", "candidate"}]
    for each in sorted(tasks, key=lambda each: each.status != "rule"):
        for line in [*review_lines([each]), *_example(each)]:
            show(line)
        answer = ask("keep, drop, edit FIELD=TEXT, merge ID, skip or quit? ").strip()
        word, _, rest = answer.partition(" ")
        if word.startswith("q"):
            return
        try:
            if word[:1] in {"k", "d"}:
                decide(root, TaskDecision(task=each.task.id, action="keep" if word[0] == "k" else "drop"))
            elif word.startswith("e"):
                decide(root, edited(f"{each.task.id}.{rest}"))
            elif word.startswith("m"):
                decide(root, TaskDecision(task=each.task.id, action="merge", into=rest.strip()))
        except UserError as error:
            show(str(error))


def _example(each: ReviewedTask) -> list[str]:
    first = each.task.occurrences[0]
    parts = {"asked": first.request, "rejected": first.rejected, "correction": first.words, "then": first.corrected}
    return [f"          {name}: {' '.join(text.split())[:200]}" for name, text in parts.items() if text]
