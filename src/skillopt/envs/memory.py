"""Tasks that a program holds as a list of dicts, and a plain function as their scorer."""

from __future__ import annotations

import hashlib
import inspect
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt import plugins
from skillopt.config import EnvConfig
from skillopt.envs.base import SPLITS, Env, Item, Score
from skillopt.envs.qa import QAEnv, read_item
from skillopt.errors import UserError
from skillopt.run.directory import safe_name
from skillopt.run.files import write_json

Row = Mapping[str, Any]
Tasks = Sequence[Row] | Mapping[str, Sequence[Row]]
"""A list of tasks, which is split here, or the three splits by name."""
Scorer = Callable[[Item, str], Any]
"""Of a task and the target's output: a Score, a number from 0 to 1, a bool, or (number, feedback). It may be async."""

SHARES = {"train": 0.5, "val": 0.25, "test": 0.25}
_FEWEST = 8


def read_tasks(tasks: Tasks, *, scored: bool) -> dict[str, list[dict[str, Any]]]:
    """The tasks as rows of three splits, each with an id. Without a scorer of its own each needs an answer."""
    if isinstance(tasks, Mapping):
        if set(tasks) != set(SPLITS):
            raise UserError(f"tasks: has the splits {', '.join(map(str, tasks)) or 'none'}; give train, val and test")
        splits = {
            split: [_row(row, f"tasks[{split!r}][{n}]", scored) for n, row in enumerate(tasks[split])]
            for split in SPLITS
        }
    else:
        splits = split_rows([_row(row, f"tasks[{n}]", scored) for n, row in enumerate(tasks)])
    for split, rows in splits.items():
        ids = [row["id"] for row in rows]
        if twice := sorted({i for i in ids if ids.count(i) > 1}):
            raise UserError(f"tasks: '{twice[0]}' stands twice in {split}; every task needs an id of its own")
    return splits


def _row(row: Row, where: str, scored: bool) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: must be a dict with question and answer, not {type(row).__name__}")
    made = dict(row)
    if "answer" in made and "answers" not in made:
        made["answers"] = made.pop("answer")
    if isinstance(made.get("answers"), int | float | str):
        made["answers"] = [str(made["answers"])]
    if scored:
        made.setdefault("answers", [])
    if "id" not in made:
        content = f"{made.get('question', '')}\n{made.get('context', '')}"
        made["id"] = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:10]
    item = read_item(where, made, answers_needed=not scored)
    return item.model_dump(mode="json")


def split_rows(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Half for training, a quarter each for validation and test, the same task once only.

    Every run draws the same: under another seed a test task must not become a training task.
    """
    unique = list({Item.model_validate(row).content(): row for row in rows}.values())
    if len(unique) < _FEWEST:
        raise UserError(
            f"tasks: {len(unique)} different tasks are too few to be split into train, val and test; give {_FEWEST} or "
            "more, or the three splits by name"
        )
    unique.sort(key=lambda row: str(row["id"]))
    random.Random("tasks").shuffle(unique)  # noqa: S311
    first, second = (round(len(unique) * share) for share in (SHARES["train"], SHARES["train"] + SHARES["val"]))
    return {"train": unique[:first], "val": unique[first:second], "test": unique[second:]}


def save_tasks(splits: Mapping[str, list[dict[str, Any]]], output_root: str, name: str) -> Path:
    """Written down as a split folder, so that every command works on the run later."""
    digest = hashlib.sha256(json.dumps(splits, sort_keys=True).encode()).hexdigest()
    folder = Path(output_root) / "task_sets" / f"{safe_name(name)}-{digest[:8]}"
    for split, rows in splits.items():
        write_json(folder / split / "items.json", rows)
    return folder


class MemoryEnv(QAEnv):
    """Questions and answers from memory."""

    def __init__(self, config: EnvConfig, splits: Mapping[str, list[dict[str, Any]]]) -> None:
        super().__init__(config, {split: [Item.model_validate(row) for row in rows] for split, rows in splits.items()})


class ScoredEnv:
    """Any env with the user's function in place of its scorer."""

    def __init__(self, env: Env, scorer: Scorer) -> None:
        self._env = env
        self._scorer = scorer
        self.name = env.name
        self.fingerprint = f"{getattr(env, 'fingerprint', '')}{plugins.fingerprint(scorer)}"

    def __getattr__(self, name: str) -> Any:
        if name == "judge":  # the function takes the judge's place, too
            raise AttributeError(name)
        return getattr(self._env, name)

    def score(self, item: Item, output: str) -> Any:
        said = self._called(item, output)
        return self._later(item, said) if inspect.isawaitable(said) else as_score(said, item.id)

    def _called(self, item: Item, output: str) -> Any:
        try:
            return self._scorer(item, output)
        except Exception as error:
            raise UserError(
                f"the scorer '{plugins.named(self._scorer)}' failed on task '{item.id}': {error!r}"
            ) from error

    async def _later(self, item: Item, said: Awaitable[Any]) -> Score:
        return as_score(await said, item.id)


def as_score(said: Any, item_id: str) -> Score:
    """What a function may say of an output, as a score. A task is solved at 1."""
    if isinstance(said, Score):
        return said
    value, feedback = said if isinstance(said, tuple) and len(said) == 2 else (said, "")
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise UserError(
            f"the scorer gave {said!r} for task '{item_id}'; give a number from 0 to 1, or (number, feedback)"
        )
    return Score(hard=float(value >= 1), soft=float(value), feedback=str(feedback))
