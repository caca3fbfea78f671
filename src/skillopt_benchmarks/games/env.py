"""Envs of text games. In each turn, the target reads what the game says and names its next action."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.models.base import Message
from skillopt.models.weights import cache_root
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Env, Episode, Item, Score
from skillopt.tasks.images import safe_file
from skillopt.tasks.package_tools import target_with, with_files
from skillopt.tasks.qa import SplitLimits
from skillopt.tasks.tools import system
from skillopt_benchmarks.games.pool import GamePool, Recipe
from skillopt_benchmarks.rows import read_rows

_ACTION = re.compile(r"<(action|answer)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_ASK = "Possible actions: {commands}\nReply with one action."


class GameOptions(Options):
    """`env.options` of games."""

    steps: int = Field(default=50, ge=1)
    """The maximum number of actions in a game. If the game is not won by then, it is lost."""
    history: int = Field(default=10, ge=0)
    """The maximum number of earlier turns in a request; 0 means all turns. A request also contains the task and the
    last observation."""
    processes: int = Field(default=0, ge=0)
    """The number of worker processes that play the games; 0 for one per core (in a cluster, one per cluster worker)."""
    limit: SplitLimits = Field(default={})
    """The maximum number of games to use from each split, such as {train: 12, val: 6}."""


class GameItem(Item):
    """An item that is a game. Two games with the same goal have different values of `digest`."""

    digest: str = ""

    def content(self) -> str:
        return f"{super().content()} {self.digest}"


class GameEnv(Env):
    """An env of text games. An item has either `game`, the name of a file below the split folder, or `recipe`. The
    game's file is made from a recipe once and then stored."""

    suffix: str
    task = (
        "Each task is a text game of several turns: the agent replies with one action a turn until the goal is reached."
    )
    scoring = "A task is solved when the game is won within the allowed turns."
    package: str
    """The package of the games' engine (used in worker.py); SkillOpt's extra of the same name installs it."""

    patterns = {  # noqa: RUF012 - part of the Env contract
        "impossible actions": "actions that are not among the possible ones, which cost a turn each",
        "going in circles": "the same action again in the same situation",
        "a step is left out": "the goal needs a step that is never taken",
    }

    def __init__(self, config: EnvConfig) -> None:
        self.require()
        self.options = GameOptions.read(config.options, "env.options")
        self.name = config.benchmark or config.name
        self.turns = self.options.steps
        self._root = Path(config.split_dir)
        how = f"make games with `skillopt data generate {self.package} --out FOLDER`, or use the mini config"
        read = read_rows(config, (), how)
        self._splits = {
            split: [self._item(item) for item in items[: self.options.limit.get(split)]]
            for split, items in read.items()
        }
        self.pool = GamePool(self.package, self.options.processes)
        self._making: dict[str, asyncio.Lock] = {}

    @classmethod
    def require(cls) -> None:
        """Raise an error if the engine is not installed."""
        if importlib.util.find_spec(cls.package) is None:
            raise UserError(f"env.name: {cls.package} needs its package: pip install 'skillopt[{cls.package}]'")

    def _item(self, item: Item) -> GameItem:
        recipe, game = item.get("recipe"), item.get("game")
        if bool(recipe) == bool(game):
            raise UserError(f"item '{item.id}': needs either the field 'game' (a file) or the field 'recipe'")
        game = made_of(self.package, recipe).name if recipe else _hash(self.file(item).read_bytes())
        return GameItem.model_validate({**item.model_dump(), "digest": game})

    def file(self, item: Item) -> Path:
        return safe_file(self._root, str(item.get("game")), f"item '{item.id}': game")

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def game_file(self, item: Item) -> Path:
        """Return the path of the game's file. If the item has a recipe, the file is made unless it exists already.
        Raise UserError if the recipe now makes a game whose goal is not in the question."""
        recipe = item.get("recipe")
        if not recipe:
            return self.file(item)
        folder = made_of(self.package, recipe)
        path = folder / f"game{self.suffix}"
        if path.exists():
            return path
        async with self._making.setdefault(folder.name, asyncio.Lock()):
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                facts = await self.pool.build({**recipe, "plan": False}, path)
                if facts.objective.strip() not in item.question:
                    path.unlink()
                    raise UserError(
                        f"item '{item.id}': the installed {self.package} makes another game from this recipe; make "
                        f"the games again with `skillopt data generate {self.package}`"
                    )
        return path

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        path = await self.game_file(item)
        async with self.pool.game() as game:
            state = await game.start(path)
            turns: list[Message] = [{"role": "user", "content": f"{item.question}\n\n{state.observation}"}]
            impossible = 0
            with target_with(skill, chat) as target:
                while not (state.won or state.done) and len(turns) < 2 * self.options.steps:
                    reply = await target([*system(skill), *shown(turns, state.commands, self.options.history)])
                    action = read_action(reply.text, state.commands)
                    impossible += action not in state.commands
                    state = await game.step(action)
                    turns.append({"role": "assistant", "content": reply.text})
                    turns.append({"role": "user", "content": state.observation})
        count = len(turns) // 2
        output = f"{'won' if state.won else 'not won'} after {count} actions"
        score = _score(item, state.won, count, impossible)
        return with_files(Episode(messages=[*system(skill), *turns], output=output, score=score), target)

    def score(self, item: Item, output: str) -> Score:
        """Return the score 0, because an answer that was not played in a game cannot win."""
        return _score(item, False, 0, 0)

    def close(self) -> None:
        self.pool.close()


def _score(item: Item, won: bool, count: int, impossible: int) -> Score:
    if won:
        return Score(hard=1, soft=1)
    reasons = [f"not won within {count} actions"]
    reasons += [f"{impossible} of them were not possible"] if impossible else []
    walkthrough = item.get("walkthrough")
    reasons += [f"a way to win: {' > '.join(walkthrough)}"] if walkthrough else []
    return Score(hard=0, soft=0, feedback="; ".join(reasons))


def shown(turns: list[Message], commands: Sequence[str], history: int) -> list[Message]:
    """Return the messages that the target sees: the task, the last turns, and the possible actions."""
    window = turns if not history or len(turns) <= 2 * history + 1 else [turns[0], *turns[-2 * history :]]
    last: Message = {**window[-1], "content": f"{window[-1]['content']}\n\n{_ASK.format(commands=', '.join(commands))}"}
    if len(window) < len(turns):
        count = (len(turns) - len(window)) // 2
        left_out: Message = {**turns[0], "content": f"{turns[0]['content']}\n\n[{count} turns left out]"}
        return [left_out, *window[1:-1], last]
    return [*window[:-1], last]


def read_action(reply: str, commands: Sequence[str]) -> str:
    """Return the action that a reply names, in tags or on its last line. The action may be part of a sentence."""
    tagged = _ACTION.findall(reply)
    lines = [line for line in (tagged[-1][1] if tagged else reply).splitlines() if line.strip()]
    command_text = (
        re.sub(r"^(?:action|next action|>)\s*:?\s*", "", lines[-1].strip().strip("`*\"'"), flags=re.I) if lines else ""
    )
    command_text = command_text.strip().rstrip(".").strip("`*\"'")
    if command_text in commands:  # the usual case
        return command_text
    by_lower = {command.lower(): command for command in commands}
    if command_text.lower() in by_lower:
        return by_lower[command_text.lower()]
    inside = [
        command for lower, command in by_lower.items() if re.search(rf"\b{re.escape(lower)}\b", command_text.lower())
    ]
    return max(inside, key=len) if inside else command_text[:200]


def made_of(package: str, recipe: Recipe) -> Path:
    """Return the folder in the user's cache for the game of a recipe."""
    return cache_root() / "games" / package / _hash(json.dumps(recipe, sort_keys=True).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


class TextWorldEnv(GameEnv):
    """Generated text adventures."""

    package = "textworld"
    suffix = ".z8"


class AlfWorldEnv(GameEnv):
    """Household tasks of six types. The official games are below ALFWORLD_DATA."""

    package = "alfworld"
    suffix = ".tw-pddl"

    def file(self, item: Item) -> Path:
        official = os.environ.get("ALFWORLD_DATA", "")
        name = str(item.get("game"))
        if official and (Path(official) / name).is_file():
            return safe_file(Path(official), name, f"item '{item.id}': game")
        return super().file(item)
