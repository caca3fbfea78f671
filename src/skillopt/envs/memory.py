"""What a program passes in: tasks as a list of dicts or a file, plain functions as their scorer and their agent."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt import plugins
from skillopt.config import Config, EnvConfig
from skillopt.config.identity import PASSED_IN
from skillopt.envs import open_env
from skillopt.envs.agents import Function, OwnAgent
from skillopt.envs.base import SPLITS, Chat, Env, Episode, Item, Score, ScorerError
from skillopt.envs.columns import read_task_file
from skillopt.envs.data import Placed, content_hash, items_from, read_splits
from skillopt.envs.qa import QAEnv
from skillopt.envs.scorer_worker import Item as Fields
from skillopt.envs.scoring import SCORERS
from skillopt.envs.splits import RATIOS, TASK_SETS, divide, without_copies
from skillopt.envs.workspace import Workspaces
from skillopt.errors import UserError
from skillopt.run.directory import safe_name
from skillopt.run.files import write_json
from skillopt.skill import Skill

Row = Mapping[str, Any]
Tasks = Sequence[Row] | Mapping[str, Sequence[Row]] | str | Path
"""A list of tasks or a file with them, which is split here; or the three splits by name, or as folders."""
Scorer = Callable[..., Any]
"""Of a task (its fields as keys and as attributes) and the target's output: a number from 0 to 1, a bool,
(number, feedback) or a Score. A third parameter gets the workspace that was left, a Path. It may be async."""

_FEWEST = 8


def own_env(
    config: Config, env: Env | None, tasks: Tasks | None, scorer: Scorer | None, agent: Function | None
) -> tuple[Config, Env | None]:
    """The env that is meant, and the config that names its data; None where the config alone makes the env."""
    if tasks is not None and env is not None:
        raise UserError("tasks and env: an env has its own tasks; give one of the two")
    if agent is not None and config.env.command:
        raise UserError("agent and env.command: both would do the tasks; give one of the two")
    options = config.env.agent_options
    inside = config.env.model_copy(update={"agent": "", "agent_options": {}}) if agent is not None else config.env
    if tasks is not None:
        splits = read_tasks(tasks, answers=scorer is None and config.env.scoring in SCORERS)
        name = config.env.benchmark or "tasks"
        data = {"benchmark": name, "data": "", "split_dir": str(save_tasks(splits, config.env.output_root, name))}
        config = config.model_copy(update={"env": config.env.model_copy(update={"name": "qa", **data})})
        env = MemoryEnv(inside.model_copy(update={"name": "qa", **data}), splits)
    elif env is None and (scorer or agent):
        env = open_env(config.model_copy(update={"env": inside}))
    if agent is not None:
        assert env is not None
        env = AgentEnv(env, OwnAgent(agent, options, getattr(env, "workspaces", Workspaces(Path()))))
        config = config.model_copy(update={"env": config.env.model_copy(update={"agent": ""})})
    if scorer is not None:
        assert env is not None
        env = ScoredEnv(env, scorer)
        named = config.env.model_copy(update={"scoring": f"{PASSED_IN}{plugins.named(scorer)}"})
        config = config.model_copy(update={"env": named})
    return config, env


def read_tasks(tasks: Tasks, *, answers: bool) -> dict[str, list[Item]]:
    """The tasks by split. A list is split by content, the same way in every run: no test task is trained on later."""
    if isinstance(tasks, str | Path):
        if Path(tasks).is_dir():
            return read_splits(str(tasks), answers=answers)
        return _divided(read_task_file(Path(tasks), answers=answers).items, str(tasks))
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


def _takes_workspace(scorer: Scorer) -> bool:
    try:
        return len(inspect.signature(scorer).parameters) > 2
    except (TypeError, ValueError):
        return False


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


class MemoryEnv(QAEnv):
    """Questions and answers from memory."""

    def __init__(self, config: EnvConfig, splits: Mapping[str, list[Item]]) -> None:
        super().__init__(config, dict(splits))


class AgentEnv:
    """Any env with the user's function in place of what does its tasks."""

    def __init__(self, env: Env, agent: OwnAgent) -> None:
        self._env = env
        self._agent = agent
        self.name, self.problem = env.name, ""
        self.fingerprint = f"{getattr(env, 'fingerprint', '')}{agent.fingerprint}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        episode = await self._agent.run(item, skill, chat)
        finished = getattr(self._env, "finished", None)
        return await finished(item, episode) if finished else episode


class ScoredEnv:
    """Any env with the user's function in place of its scorer."""

    noisy = False

    def __init__(self, env: Env, scorer: Scorer) -> None:
        self._env = env
        self._scorer = scorer
        self._files: Workspaces | None = getattr(env, "workspaces", None) if _takes_workspace(scorer) else None
        if self._files:
            self._files.used = True
        self.name = env.name
        said = (inspect.getdoc(scorer) or "").split("\n\n")[0]
        self.scoring = " ".join(said.split()) or "A function scores the reply; its rule is not described."
        inside = getattr(env, "fingerprint", "")
        self.fingerprint = f"{inside}{plugins.fingerprint(scorer, module=False)}"
        self.former_fingerprint = f"{inside}{plugins.fingerprint(scorer)}"
        """By which version 0.1 named a run."""

    def __getattr__(self, name: str) -> Any:
        if name == "judge":  # the function takes the judge's place, too
            raise AttributeError(name)
        return getattr(self._env, name)

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        episode = await self._env.run(item, skill, chat)
        if self._files is None or episode.score is not None:
            return episode
        score = await self._looked_at(self._files, item, episode.output, getattr(episode, "packed", ""))
        return episode.model_copy(update={"score": score, "packed": ""})

    async def score(self, item: Item, output: str) -> Score:
        if self._files is None:
            return await self._asked(item, output)
        return await self._looked_at(self._files, item, output, "")

    async def _looked_at(self, files: Workspaces, item: Item, output: str, packed: str) -> Score:
        with files.left(item, packed) as folder:
            return await self._asked(item, output, folder)

    async def _asked(self, item: Item, output: str, *workspace: Path) -> Score:
        try:
            said = self._scorer(Fields(item.model_dump(mode="json")), output, *workspace)
            found = await said if inspect.isawaitable(said) else said
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
