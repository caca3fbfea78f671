"""Tasks in this process, concurrently in its event loop."""

from __future__ import annotations

from skillopt.envs.base import Env, Episode, Item, Judge, Score, score_output
from skillopt.executor.base import NewChat
from skillopt.skill import Skill


class LocalExecutor:
    async def run(self, env: Env, item: Item, skill: Skill, new_chat: NewChat, judge: Judge) -> tuple[Episode, Score]:
        episode = await env.run(item, skill, new_chat())
        return episode, episode.score or await score_output(env, item, episode.output, judge)
