"""The env of questions with answers: items from files, an agent (tasks/agents.py) and a scorer (tasks/scorers.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.skill import Skill
from skillopt.tasks.agents import Function, OneReply, OwnAgent, open_agent
from skillopt.tasks.base import SPLITS, Agent, Chat, Env, Episode, Item, Score, Scorer
from skillopt.tasks.data import read_splits
from skillopt.tasks.images import with_image_hashes
from skillopt.tasks.sandbox import Mode, temporary_folder
from skillopt.tasks.scorers import open_scorer
from skillopt.tasks.splits import in_turn, load_split, parse_ratios
from skillopt.tasks.workspace import Files, WorkedEpisode, Workspaces, restore

CANNOT = (
    "the tasks have workspaces, and a model that gives one reply cannot change files; set env.agent=shell, or set "
    "env.agent or env.command to your own agent"
)


def _known_splits(limits: dict[str, int]) -> dict[str, int]:
    if unknown := limits.keys() - set(SPLITS):
        raise ValueError(f"unknown split '{min(unknown)}'; known are: {', '.join(SPLITS)}")
    return limits


SplitLimits = Annotated[dict[str, Annotated[int, Field(ge=1)]], AfterValidator(_known_splits)]


class QAOptions(Options):
    """Options of questions and answers (`env.options`)."""

    limit: SplitLimits = Field(default={})
    """The maximum number of items of each split, such as {train: 40, val: 20}. Use it to try a part of the tasks
    first."""
    workspace_mb: int = Field(default=64, ge=1, le=1024)
    """The maximum number of megabytes of a workspace, at the start of a task and at its end."""
    sandbox: Mode = "namespaces"
    """How the scripts of a package are isolated when a chat model runs them (docs/sandbox.md)."""


def take(items: list[Item], most: int | None) -> list[Item]:
    """At most `most` items, in their original order, with about the same number of items of each type."""
    if most is None or most >= len(items):
        return items
    return [items[index] for index in sorted(in_turn([item.type for item in items])[:most])]


class QAEnv(Env):
    """Tasks from `env.data` or `env.split_dir`, done by the target, an agent or a command, scored by `env.scoring`."""

    task = "Each task is a question or a request; the agent's reply is its answer."
    workspaces: Workspaces

    def __init__(
        self,
        config: EnvConfig,
        splits: Mapping[str, list[Item]] | None = None,
        options: QAOptions | None = None,
        *,
        agent: Function | None = None,
        scorer: Scorer | None = None,
        starts: Mapping[str, Files] | None = None,
        local: bool = True,
    ) -> None:
        """`splits`, `agent` and `scorer` replace those of the config. A subclass may pass its own `options`. `starts`
        are the initial files of each item's workspace. `local` is true if any workspace is on this machine."""
        options = options or QAOptions.read(config.options, "env.options")
        self.name = config.benchmark or config.name
        root = Path(config.split_dir) if config.split_dir else Path(config.data).parent
        self._scorer = scorer or open_scorer(config, root)
        loaded = splits or load_items(config, answers=self._scorer.needs_answers)
        if scorer is None and config.scoring == "exact":
            _refuse_own_scoring(loaded)
        taken = {split: take(items, options.limit.get(split)) for split, items in loaded.items()}
        self._splits = {split: with_image_hashes(items, root) for split, items in taken.items()}
        self._scorer.check(self._splits)
        self.scores_files = self._scorer.needs_workspace
        everything = [item for items in self._splits.values() for item in items]
        self.workspaces = Workspaces(
            root, everything, most_mb=options.workspace_mb, needed=self.scores_files, starts=starts, local=local
        )
        self._agent: Agent
        if agent is not None:
            self._agent = OwnAgent(agent, config, self.workspaces)
        else:
            self._agent = open_agent(config, self.workspaces, options.sandbox, root)
        self.problem = CANNOT if self.workspaces.used and isinstance(self._agent, OneReply) else ""
        self.turns = self._agent.turns
        self.noisy = self.noisy or self._scorer.noisy
        self.scoring = self.scoring or self._scorer.description
        self.fingerprint = self._agent.fingerprint + self._scorer.fingerprint + self.workspaces.fingerprint
        self.judge = self._scorer.judge

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        """Do a task. If files are scored, the episode has the score of the files that the rollout left."""
        episode = await self._agent.run(item, skill, chat)
        if not self.scores_files or episode.score is not None or self._scorer.is_judged(item):
            return episode
        if isinstance(episode, WorkedEpisode) and episode.problem:
            score = Score(hard=0, soft=0, feedback=episode.problem)
        else:
            packed = episode.packed if isinstance(episode, WorkedEpisode) else ""
            score = await self._score_files(item, episode.output, packed)
        return episode.model_copy(update={"score": score, "packed": ""})

    def score(self, item: Item, output: str) -> Score | Awaitable[Score]:
        """The score of an output. If the scorer scores files, this is the score of an untouched workspace, as a
        baseline."""
        return self._score_files(item, output, "") if self.scores_files else self._scorer(item, output)

    async def _score_files(self, item: Item, output: str, packed: str) -> Score:
        """Score the files of a rollout. The files are restored in a fresh folder; the check puts its own files next to
        this folder."""
        with temporary_folder("skillopt-check-") as root:
            restore(self.workspaces.start(item), packed, root / "workspace")
            return await self._scorer.score_files(item, output, root / "workspace")

    def use(self, agent: Agent | None, scorer: Scorer | None) -> None:
        super().use(agent, scorer)
        if agent is not None:
            self._agent = agent
            self.run = partial(QAEnv.run, self)  # type: ignore[method-assign]
        if scorer is not None:
            self._scorer = scorer
            self.score = partial(QAEnv.score, self)  # type: ignore[method-assign]
            self.scores_files = scorer.needs_workspace
            self.workspaces.used = self.workspaces.used or self.scores_files

    def close(self) -> None:
        self._scorer.close()


def _refuse_own_scoring(splits: Mapping[str, Sequence[Item]]) -> None:
    for item in (item for items in splits.values() for item in items):
        if item.get("scoring") not in {None, "", "exact"}:
            raise UserError(
                f"env.scoring: is 'exact', but the task '{item.id}' names its own scorer ('{item['scoring']}'); set "
                "env.scoring=by_task, or remove the field 'scoring' from the task"
            )


def load_items(config: EnvConfig, *, answers: bool = True) -> dict[str, list[Item]]:
    """The items by split, from `env.data` (one file, which is split) or `env.split_dir` (a folder with three
    splits)."""
    if config.data and config.split_dir:
        raise UserError("env.data and env.split_dir exclude each other; remove one")
    if config.data:
        file = Path(config.data)
        return load_split(
            file, ratios=parse_ratios(config.split), seed=config.split_seed, answers=answers, columns=config.columns
        )
    if config.columns:
        raise UserError(
            "env.columns: works only with env.data; in env.split_dir, name the columns 'id', 'question' and 'answer'"
        )
    return read_splits(config.split_dir, answers=answers)
