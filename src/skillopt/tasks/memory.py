"""What a program passes in: tasks as a list of dicts or a file, plain functions as their scorer and their agent."""

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
from skillopt.tasks.columns import read_task_file
from skillopt.tasks.data import Placed, content_hash, items_from, read_splits
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.scorers import FunctionOptions, FunctionScorer
from skillopt.tasks.scoring import SCORERS
from skillopt.tasks.splits import RATIOS, TASK_SETS, divide, without_copies
from skillopt.tasks.workspace import Workspaces

Row = Mapping[str, Any]
Tasks = Sequence[Row] | Mapping[str, Sequence[Row]] | str | Path
"""A list of tasks or a file with them, which is split here; or the three splits by name, or as folders."""
ScorerFunction = Callable[..., Any]
"""Of a task (its fields as keys and as attributes) and the target's output: a number from 0 to 1, a bool,
(number, feedback), a dict or a Score. A parameter named `workspace` gets the folder that was left, a Path. It may be
async."""

_FEWEST = 8


def own_env(
    config: Config, env: Env | None, tasks: Tasks | None, scorer: ScorerFunction | None, agent: Function | None
) -> tuple[Config, Env | None]:
    """The env that is meant, and the config that names its data; None if the config alone makes the env."""
    if tasks is not None and env is not None:
        raise UserError("tasks and env: an env has its own tasks; give one of the two")
    if agent is not None and config.env.command:
        raise UserError("agent and env.command: both would do the tasks; give one of the two")
    section = config.env
    if tasks is not None:
        splits = read_tasks(tasks, answers=scorer is None and section.scoring in SCORERS)
        name = section.benchmark or "tasks"
        folder = save_tasks(splits, section.output_root, name)
        section = section.model_copy(update={"name": "qa", "benchmark": name, "data": "", "split_dir": str(folder)})
    function, inside = None, section
    if scorer is not None:
        options = section.scoring_options
        # Another env's options that the function does not take belong to the scorer that it replaces.
        taken = {name: options[name] for name in options if tasks is not None or name in FunctionOptions.model_fields}
        function = FunctionScorer(scorer, FunctionOptions.read(taken, "env.scoring_options"))
        rest = {name: options[name] for name in options if name not in taken}
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


def read_tasks(tasks: Tasks, *, answers: bool) -> dict[str, list[Item]]:
    """The tasks by split. A list is split by content, the same way in every run: no test task is trained on later."""
    if isinstance(tasks, str | Path):
        if Path(tasks).is_dir():
            return read_splits(str(tasks), answers=answers)
        read = read_task_file(Path(tasks), answers=answers)
        if told := read.warnings():
            warnings.warn("\n".join(told), stacklevel=2)
        return _divided(read.items, str(tasks))
    if isinstance(tasks, Mapping):
        if set(tasks) != set(SPLITS):
            raise UserError(f"tasks: has the splits {', '.join(map(str, tasks)) or 'none'}; give train, val and test")
        return {split: _unique(_placed(tasks[split], f"tasks[{split!r}]", answers)) for split in SPLITS}
    return _divided(without_copies(_placed(tasks, "tasks", answers))[0], "tasks")


def _divided(items: list[Item], where: str) -> dict[str, list[Item]]:
    if len(items) < _FEWEST:
        raise UserError(
            f"{where}: {len(items)} different tasks are too few to be split into train, val and test; give {_FEWEST} "
            "or more, or the three splits by name"
        )
    split = divide(items, RATIOS, 0)
    return {name: [item for item in items if split[content_hash(item)] == name] for name in SPLITS}


def _placed(rows: Sequence[Row], where: str, answers: bool) -> list[Placed]:
    plain = ((f"{where}[{n}]", dict(row) if isinstance(row, Mapping) else row) for n, row in enumerate(rows))
    return items_from(plain, answers=answers)


def _unique(placed: Sequence[Placed]) -> list[Item]:
    """Without copies that have no id; those that have one are there on purpose."""
    without_copies(placed)
    return [item for _, item in placed if not item.id.startswith(f"{content_hash(item)}-")]


def save_tasks(splits: Mapping[str, list[Item]], output_root: str, name: str) -> Path:
    """Written down as a split folder, so that every command works on the run later."""
    rows = {split: [item.model_dump(mode="json") for item in items] for split, items in splits.items()}
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    folder = Path(output_root) / TASK_SETS / f"{safe_name(name)}-{digest[:8]}"
    for split in SPLITS:
        write_json(folder / split / "items.json", rows[split])
    return folder
