"""An env for tests of executors: two calls a task, and a worker that dies after the first where a file says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from skillopt.config import EnvConfig
from skillopt.sim.env import SimEnv
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Episode, Item


class TwoCallEnv(SimEnv):
    """`env.options.dies_once`: a path; the first worker that does train-005 leaves the file there and dies."""

    def __init__(self, config: EnvConfig) -> None:
        options = dict(config.options)
        self._dies_once = options.pop("dies_once", "")
        super().__init__(config.model_copy(update={"options": options}))

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        messages: list[dict[str, Any]] = [{"role": "system", "content": skill.text or "-"}]
        hint = await chat([*messages, {"role": "user", "content": f"What is asked in ticket {item.id}?"}])
        if self._dies_once and item.id == "train-005" and not Path(self._dies_once).exists():
            Path(self._dies_once).touch()
            os._exit(1)
        reply = await chat([*messages, {"role": "user", "content": item.question}])
        told = [{"role": "assistant", "content": text} for text in (hint.text, reply.text)]
        return Episode(messages=[*messages, *told], output=reply.text)
