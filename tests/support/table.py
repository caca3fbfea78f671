"""An env and a target whose outcomes stand in a table, for the tests of the gates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skillopt.config import Config
from skillopt.models.base import ChatReply, ChatRequest, FatalError, ModelError, RefusedError, TransientError
from skillopt.models.call import Budget, Caller, Limiter, Switch
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Events
from skillopt.record.journal import Journal
from skillopt.skill import Applied, Edit, Skill
from skillopt.tasks.base import Chat, Env, Episode, Item, Score
from skillopt.training.context import Context

CANDIDATE = Applied(skill=Skill("New."), applied=(Edit(id="e1", op="add", text="New.", trajectory_ids=("t",)),))
PARTS = 30
"""Soft scores are so many parts of 1, so that what is right can be reckoned exactly."""
Outcome = tuple[int, int] | str
"""Hard and soft score of one item (soft in parts), or `refused`, `down`, `fatal`."""


class TableEnv(Env):
    """Items whose outcome the target looks up in a table."""

    name = "table"

    def __init__(self, ids: Sequence[str]) -> None:
        self._items = [Item(id=item_id, question=f"{item_id}?") for item_id in ids]

    def items(self, split: str) -> Sequence[Item]:
        return self._items

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        reply = await chat([{"role": "user", "content": item.id}])
        return Episode(messages=[], output=reply.text)

    def score(self, item: Item, output: str) -> Score:
        hard, soft = json.loads(output)
        return Score(hard=hard, soft=soft / PARTS)


@dataclass
class TableTarget:
    """Answers from a table, after as many turns of the event loop as `delays` says."""

    outcomes: Mapping[str, Outcome]
    delays: Mapping[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    name = "sim:table"
    endpoint = "table"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        item_id = str(request.messages[0]["content"])
        self.asked.append(item_id)
        for _ in range(self.delays.get(item_id, 0)):
            await asyncio.sleep(0)
        outcome = self.outcomes[item_id]
        errors: dict[str, ModelError] = {
            "refused": RefusedError("content filter"),
            "down": TransientError("503"),
            "fatal": FatalError("401"),
        }
        if isinstance(outcome, str):
            raise errors[outcome]
        return ChatReply(text=json.dumps(outcome))

    async def close(self) -> None:
        return


def context(target: TableTarget, metric: str = "hard", workers: int = 4) -> Context:
    config = Config.parse({"evaluation": {"metric": metric}, "hardware": {"workers": workers, "max_retries": 0}})
    journal = Journal(":memory:")
    caller = Caller(
        model=target,
        role="target",
        journal=journal,
        limiter=Limiter(workers),
        budget=Budget(config.budget, journal),
        switch=Switch(),
        hardware=config.hardware,
        deterministic=True,
    )
    run, events = RunDirectory(Path("unused")), Events(None)
    env = TableEnv(sorted(target.outcomes))
    return Context(config=config, env=env, target=caller, optimizer=caller, run=run, events=events)
