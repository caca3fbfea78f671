"""The contract of an executor: one task done and scored, with the model calls made by this process; the usual one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from skillopt.envs.base import Chat, Env, Episode, Item, Judge, Score, score_output
from skillopt.errors import SkillOptError
from skillopt.skill import Skill

NewChat = Callable[[], Chat]
"""Binds the target to the rollout from its first turn. A rollout that is begun again asks the same again, and finds
what was answered in the journal."""


class WorkerLostError(SkillOptError):
    """The process or machine that did a task is gone. That says nothing about the task."""


class Executor(Protocol):
    """`run` gives the same for the same task and replies, wherever it is done; errors of models and scorers are raised
    as if it were done here."""

    async def run(
        self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge
    ) -> tuple[Episode, Score]: ...


class LocalExecutor:
    """Tasks in this process, concurrently in its event loop."""

    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        episode = await env.run(item, skill, new_chat())
        return episode, episode.score or await score_output(env, item, episode.output, judge)
