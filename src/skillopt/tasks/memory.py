"""Tasks that a program passes in: a list of dicts or a file, with plain functions as scorer and agent."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from skillopt import plugins
from skillopt.config import Config
from skillopt.config.identity import PASSED_IN
from skillopt.errors import UserError
from skillopt.record.directory import safe_name
from skillopt.record.files import write_json
from skillopt.tasks import open_env
from skillopt.tasks.agents import Function, OwnAgent
from skillopt.tasks.base import SPLITS, Env, Item
from skillopt.tasks.columns import tasks_of
from skillopt.tasks.data import Placed, content_hash, items_from, read_splits
from skillopt.tasks.dialogs import as_task
from skillopt.tasks.images import copy_images
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.scorers import FunctionOptions, FunctionScorer
from skillopt.tasks.scoring import SCORERS
from skillopt.tasks.splits import RATIOS, TASK_SETS, divide, parse_ratios, without_copies
from skillopt.tasks.tables import DataTable, plain_row, table_rows
from skillopt.tasks.task_file import read_task_file
from skillopt.tasks.workspace import Workspaces

Row = Mapping[str, Any]
Tasks = Sequence[Row] | DataTable | Mapping[str, Sequence[Row] | DataTable] | str | Path
"""The tasks of a program. SkillOpt splits a list, a data frame, a data set or a file. Tasks that are already split come
as a mapping with the keys `train`, `val` and `test`, or as a split folder."""
ScorerFunction = Callable[..., Any]
"""A scorer function. It gets a task (its fields as keys and as attributes) and the target's output, and returns a
number from 0 to 1, a bool, (number, feedback), a dict or a Score. A parameter named `workspace` gets the Path of the
workspace as it is after the rollout. The function may be async."""

_FEWEST = 8


def own_env(
    config: Config, env: Env | None, tasks: Tasks | None, scorer: ScorerFunction | None, agent: Function | None
) -> tuple[Config, Env | None]:
    """Make the env from a program's arguments. Returns the config, which then names the env's data; and the env, or
    None if the config alone is enough to make the env."""
    if tasks is not None and env is not None:
        raise UserError("give either 'tasks' or 'env', because an env has its own tasks")
    if agent is not None and config.env.command:
        raise UserError("give either 'agent' or 'env.command', because each of them does the tasks")
    section = config.env
    if tasks is not None:
        splits = read_tasks(
            tasks,
            answers=scorer is None and section.scoring in SCORERS,
            columns=section.columns,
            ratios=parse_ratios(section.split),
            seed=section.split_seed,
        )
        name = section.benchmark or "tasks"
        folder = save_tasks(splits, section.output_root, name)
        for items in splits.values():
            copy_images(items, _root(tasks), folder)
        changes = {"name": "qa", "benchmark": name, "data": "", "columns": {}, "split_dir": str(folder)}
        section = section.model_copy(update=changes)
    function, inside = None, section
    if scorer is not None:
        options = section.scoring_options
        # Options of the env that the function does not take are for the scorer that it replaces.
        accepted = {
            name: options[name] for name in options if tasks is not None or name in FunctionOptions.model_fields
        }
        function = FunctionScorer(scorer, FunctionOptions.read(accepted, "env.scoring_options"))
        rest = {name: options[name] for name in options if name not in accepted}
        inside = section.model_copy(update={"scoring_options": rest})
    if tasks is not None:
        env = QAEnv(inside, splits, agent=agent, scorer=function)
    elif scorer or agent:
        if agent:
            inside = inside.model_copy(update={"agent": "", "agent_options": {}})
        env = copy(env) if env else open_env(config.model_copy(update={"env": inside}))
        env.use(OwnAgent(agent, section, env.workspaces or Workspaces(Path())) if agent else None, function)
    if agent is not None:
        section = section.model_copy(update={"agent": ""})
    if scorer is not None:
        section = section.model_copy(update={"scoring": f"{PASSED_IN}{plugins.named(scorer)}"})
    return config.model_copy(update={"env": section}), env


def _root(tasks: Tasks) -> Path:
    """The folder in which images are looked up: the folder of the tasks' file, else the working folder."""
    path = Path(tasks) if isinstance(tasks, str | Path) else Path()
    return path if path.is_dir() else path.parent


def read_tasks(
    tasks: Tasks,
    *,
    answers: bool,
    columns: Mapping[str, str] | None = None,
    ratios: Mapping[str, float] = RATIOS,
    seed: int = 0,
) -> dict[str, list[Item]]:
    """The tasks by split. A list is split by content, in the same way in every run. So a test task of one run is never
    a training task of a later run."""
    if isinstance(tasks, str | Path):
        if Path(tasks).is_dir():
            return read_splits(str(tasks), answers=answers)
        read = read_task_file(Path(tasks), columns=columns, answers=answers)
        if lines := read.warnings():
            warnings.warn("\n".join(lines), stacklevel=2)
        return _divided(read.items, str(tasks), ratios, seed)
    if isinstance(tasks, Mapping):
        named = {"val" if name == "validation" else name: rows for name, rows in tasks.items()}
        if set(named) != set(SPLITS):
            raise UserError(
                f"tasks: needs the splits 'train', 'val' and 'test', not: {', '.join(map(str, tasks)) or 'none'}"
            )
        return {split: _unique(_placed(named[split], f"tasks[{split!r}]", answers, columns)) for split in SPLITS}
    return _divided(without_copies(_placed(tasks, "tasks", answers, columns))[0], "tasks", ratios, seed)


def _divided(items: list[Item], where: str, ratios: Mapping[str, float], seed: int) -> dict[str, list[Item]]:
    if len(items) < _FEWEST:
        raise UserError(
            f"{where}: {len(items)} different tasks are too few to be split into train, val and test; give {_FEWEST} "
            "or more, or pass train, val and test separately"
        )
    split = divide(items, ratios, seed)
    return {name: [item for item in items if split[content_hash(item)] == name] for name in SPLITS}


def _placed(
    rows: Sequence[Row] | DataTable, where: str, answers: bool, columns: Mapping[str, str] | None
) -> list[Placed]:
    """Convert rows to items with their locations. Columns of data frames and data sets, and fields of dspy's
    examples, may have any of the usual names."""
    table = table_rows(rows, where)
    if table is None and not isinstance(rows, Sequence):
        raise UserError(f"{where}: {type(rows).__name__} is not a list of dicts, a data frame or a data set")
    listed = rows if isinstance(rows, Sequence) else ()
    read = table or ((f"{where}[{n}]", _as_dict(row)) for n, row in enumerate(listed))
    plain = ((place, as_task(row)) for place, row in read)
    if columns or table is not None or any(hasattr(row, "toDict") for row in listed):
        return tasks_of(plain, file=where, columns=columns, answers=answers)
    return items_from(plain, answers=answers)


def _as_dict(row: object) -> object:
    """A row as a dict; the examples of dspy have `toDict`."""
    if hasattr(row, "toDict"):
        return plain_row(row.toDict())
    return dict(row) if isinstance(row, Mapping) else row


def _unique(placed: Sequence[Placed]) -> list[Item]:
    """The tasks without copies. A copy that has its own id is kept, because it is there on purpose."""
    without_copies(placed)
    return [item for _, item in placed if not item.id.startswith(f"{content_hash(item)}-")]


def save_tasks(splits: Mapping[str, list[Item]], output_root: str, name: str) -> Path:
    """Write the tasks as a split folder, so all commands can use the run later."""
    rows = {split: [item.model_dump(mode="json") for item in items] for split, items in splits.items()}
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    folder = Path(output_root) / TASK_SETS / f"{safe_name(name)}-{digest[:8]}"
    for split in SPLITS:
        write_json(folder / split / "items.json", rows[split])
    return folder
