"""Questions with answers: items from files, a way to do them (envs/agents.py), a scorer (envs/scorers.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.envs.agents import OneReply, open_agent
from skillopt.envs.base import SPLITS, Chat, Episode, Item, Score
from skillopt.envs.data import read_splits
from skillopt.envs.rows import in_turn
from skillopt.envs.sandbox import Mode
from skillopt.envs.scorers import JudgeScorer, Scorer, open_scorer
from skillopt.envs.splits import load_split, parse_ratios
from skillopt.envs.workspace import Files, WorkedEpisode, Workspaces
from skillopt.errors import UserError
from skillopt.options import Options
from skillopt.skill import Skill

CANNOT = (
    "the tasks have workspaces, and a model that gives one reply cannot change files; set env.agent: shell, or name "
    "your agent or command"
)


class QAOptions(Options):
    """`env.options` of questions and answers."""

    limit: dict[str, Annotated[int, Field(ge=1)]] = Field(default={})
    """The most items to use of a split, for a first try on a part: {train: 40, val: 20}."""
    workspace_mb: int = Field(default=64, ge=1, le=1024)
    """The largest workspace, at the start of a task and at its end."""
    sandbox: Mode = "namespaces"
    """How a package's scripts are run for a chat model; see docs/sandbox.md for `limits`."""


def take(items: list[Item], most: int | None) -> list[Item]:
    """The first `most` items, the same number of each type as far as they go, in their old order."""
    if most is None or most >= len(items):
        return items
    return [items[place] for place in sorted(in_turn([item.type for item in items])[:most])]


class QAEnv:
    """Tasks from `env.data` or `env.split_dir`, done by the target, an agent or a command, scored by `env.scoring`."""

    noisy = False
    task = "Each task is a question or a request; the agent's reply is its answer."
    scoring = ""

    def __init__(
        self,
        config: EnvConfig,
        splits: dict[str, list[Item]] | None = None,
        options: QAOptions | None = None,
        *,
        scorer: Scorer | None = None,
        starts: Mapping[str, Files] | None = None,
        local: bool = True,
    ) -> None:
        """An env of a special kind may bring its items, its options, which extend these, its scorer, what each item's
        workspace starts from, and whether any is on this machine."""
        options = options or QAOptions.read(config.options, "env.options")
        if unknown := options.limit.keys() - set(SPLITS):
            raise UserError(f"env.options.limit: unknown split '{min(unknown)}'; known are: {', '.join(SPLITS)}")
        self.name = config.benchmark or config.name
        root = Path(config.split_dir) if config.split_dir else Path(config.data).parent
        self._scorer = scorer or open_scorer(config.scoring, config.scoring_options, root)
        loaded = splits or load_items(config, answers=self._scorer.needs_answers)
        self._splits = {split: take(items, options.limit.get(split)) for split, items in loaded.items()}
        self.looks_at_files = self._scorer.needs_workspace
        everything = [item for items in self._splits.values() for item in items]
        self.workspaces = Workspaces(
            root, everything, most_mb=options.workspace_mb, needed=self.looks_at_files, starts=starts, local=local
        )
        self._agent = open_agent(config, self.workspaces, options.sandbox)
        self.problem = CANNOT if self.workspaces.used and isinstance(self._agent, OneReply) else ""
        self.turns = getattr(self._agent, "turns", 1)
        self._scorer.check(self._splits)
        self.noisy = self.noisy or self._scorer.noisy
        self.scoring = self.scoring or self._scorer.description
        self.fingerprint = self._agent.fingerprint + self._scorer.fingerprint + self.workspaces.fingerprint
        if isinstance(self._scorer, JudgeScorer):
            self.judge = self._scorer.judge

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        return await self.finished(item, await self._agent.run(item, skill, chat))

    async def finished(self, item: Item, episode: Episode) -> Episode:
        """With the score of the files that it left, where those are looked at."""
        if not self.looks_at_files or episode.score is not None:
            return episode
        if isinstance(episode, WorkedEpisode) and episode.problem:
            score = Score(hard=0, soft=0, feedback=episode.problem)
        else:
            packed = episode.packed if isinstance(episode, WorkedEpisode) else ""
            score = await self._looked_at(item, episode.output, packed)
        return episode.model_copy(update={"score": score, "packed": ""})

    def score(self, item: Item, output: str) -> Score | Awaitable[Score]:
        """Where files are looked at, of a workspace that nobody touched."""
        return self._looked_at(item, output, "") if self.looks_at_files else self._scorer(item, output)

    async def _looked_at(self, item: Item, output: str, packed: str) -> Score:
        """The files as the rollout left them, in a fresh folder, with the check's own next to it."""
        with self.workspaces.left(item, packed) as folder:
            return await self._scorer.look(item, output, folder)

    def close(self) -> None:
        self._scorer.close()


def load_items(config: EnvConfig, *, answers: bool = True) -> dict[str, list[Item]]:
    """The items by split, from one file that is split or from a folder that is."""
    if config.data and config.split_dir:
        raise UserError("env.data and env.split_dir exclude each other; remove one")
    if config.data:
        file = Path(config.data)
        return load_split(file, ratios=parse_ratios(config.split), seed=config.split_seed, answers=answers)
    return read_splits(config.split_dir, answers=answers)
