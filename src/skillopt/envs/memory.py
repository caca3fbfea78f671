"""Tasks that a program holds as a list of dicts, and a plain function as their scorer."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt import plugins
from skillopt.config import EnvConfig
from skillopt.envs.base import SPLITS, Env, Item, Score, ScorerError
from skillopt.envs.data import content_hash, item_from
from skillopt.envs.qa import QAEnv
from skillopt.envs.scorer_worker import Item as Fields
from skillopt.envs.splits import RATIOS, divide, without_copies
from skillopt.errors import UserError
from skillopt.run.directory import safe_name
from skillopt.run.files import write_json

Row = Mapping[str, Any]
Tasks = Sequence[Row] | Mapping[str, Sequence[Row]]
"""A list of tasks, which is split here, or the three splits by name."""
Scorer = Callable[[Any, str], Any]
"""Of a task (its fields as keys and as attributes) and the target's output: a number from 0 to 1, a bool,
(number, feedback) or a Score. It may be async."""

_FEWEST = 8


def read_tasks(tasks: Tasks, *, answers: bool) -> dict[str, list[Item]]:
    """The tasks by split. A list is split by content, the same way in every run: no test task is trained on later."""
    if isinstance(tasks, Mapping):
        if set(tasks) != set(SPLITS):
            raise UserError(f"tasks: has the splits {', '.join(map(str, tasks)) or 'none'}; give train, val and test")
        return {split: _items(tasks[split], f"tasks[{split!r}]", answers) for split in SPLITS}
    items = without_copies(_items(tasks, "tasks", answers))
    if len(items) < _FEWEST:
        raise UserError(
            f"tasks: {len(items)} different tasks are too few to be split into train, val and test; give {_FEWEST} or "
            "more, or the three splits by name"
        )
    split = divide(items, RATIOS, 0)
    return {name: [item for item in items if split[content_hash(item)] == name] for name in SPLITS}


def _items(rows: Sequence[Row], where: str, answers: bool) -> list[Item]:
    items: dict[str, Item] = {}
    for number, row in enumerate(rows):
        place = f"{where}[{number}]"
        item = item_from(place, dict(row) if isinstance(row, Mapping) else row, answers=answers, ids=False)
        known = items.setdefault(item.id, item)
        if known.content() != item.content():
            raise UserError(f"{place}: id '{item.id}' is used twice; every task needs a unique id")
    return list(items.values())


def save_tasks(splits: Mapping[str, list[Item]], output_root: str, name: str) -> Path:
    """Written down as a split folder, so that every command works on the run later."""
    rows = {split: [item.model_dump(mode="json") for item in items] for split, items in splits.items()}
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    folder = Path(output_root) / "task_sets" / f"{safe_name(name)}-{digest[:8]}"
    for split in SPLITS:
        write_json(folder / split / "items.json", rows[split])
    return folder


class MemoryEnv(QAEnv):
    """Questions and answers from memory."""

    def __init__(self, config: EnvConfig, splits: Mapping[str, list[Item]]) -> None:
        super().__init__(config, dict(splits))


class ScoredEnv:
    """Any env with the user's function in place of its scorer."""

    noisy = False

    def __init__(self, env: Env, scorer: Scorer) -> None:
        self._env = env
        self._scorer = scorer
        self.name = env.name
        said = (inspect.getdoc(scorer) or "").split("\n\n")[0]
        self.scoring = " ".join(said.split()) or "A function scores the reply; its rule is not described."
        self.fingerprint = f"{getattr(env, 'fingerprint', '')}{plugins.fingerprint(scorer)}"

    def __getattr__(self, name: str) -> Any:
        if name == "judge":  # the function takes the judge's place, too
            raise AttributeError(name)
        return getattr(self._env, name)

    def score(self, item: Item, output: str) -> Score | Awaitable[Score]:
        try:
            said = self._scorer(Fields(item.model_dump(mode="json")), output)
        except Exception as error:
            raise self._failed(item, error) from error
        return self._later(item, said) if inspect.isawaitable(said) else self._read(item, said)

    async def _later(self, item: Item, said: Awaitable[Any]) -> Score:
        try:
            found = await said
        except Exception as error:
            raise self._failed(item, error) from error
        return self._read(item, found)

    def _failed(self, item: Item, error: Exception) -> ScorerError:
        return ScorerError(f"the scorer '{plugins.named(self._scorer)}' failed on task '{item.id}': {error!r}")

    def _read(self, item: Item, said: Any) -> Score:
        """What a function may say of an output, as a score. A task is solved at 1."""
        if isinstance(said, Score):
            return said
        value, feedback = said if isinstance(said, tuple) and len(said) == 2 else (said, "")
        if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
            wrong = ValueError(f"it gave {said!r}; give a number from 0 to 1, or (number, feedback)")
            raise self._failed(item, wrong)
        return Score(hard=float(value >= 1), soft=float(value), feedback=str(feedback))
