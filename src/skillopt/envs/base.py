"""The contract of a set of tasks: items in three disjoint splits, a way to do one, a way to score what came out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from skillopt.errors import UserError
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill

SPLITS = ("train", "val", "test")

Chat = Callable[[Sequence[Message]], Awaitable[ChatReply]]
"""The target model, bound to one rollout: journalled, limited, retried and counted."""


class Item(BaseModel):
    """One task."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    question: str
    context: str = ""
    answers: tuple[str, ...] = ()
    type: str = ""
    """The task's type, for reports by type."""

    def content(self) -> str:
        """What the task asks, for finding the same task under two ids."""
        return " ".join(f"{self.question}\n{self.context}".casefold().split())


class Score(BaseModel):
    """The loss of one rollout."""

    model_config = ConfigDict(frozen=True)

    hard: float = Field(ge=0, le=1)
    """1 when the task is solved, else 0."""
    soft: float = Field(ge=0, le=1)
    feedback: str = ""
    """What the scorer can say of the failure; analysts read it."""

    def value(self, metric: str) -> float:
        if metric == "mixed":
            return (self.hard + self.soft) / 2
        return self.hard if metric == "hard" else self.soft


class Episode(BaseModel):
    """What the target did: every message, and the answer that is scored."""

    messages: list[dict[str, Any]]
    output: str


class Trajectory(BaseModel):
    """One scored rollout."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    type: str = ""
    skill_hash: str
    input: str
    answers: tuple[str, ...] = ()
    """What would have been right, for analysts; only training trajectories reach them."""
    messages: list[dict[str, Any]]
    output: str
    score: Score


class RolloutError(BaseModel):
    """A rollout that gave no score for the endpoint's sake. It enters no mean."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    skill_hash: str
    refused: bool = False
    """The endpoint refuses this item for its own sake (content filter, too long)."""
    error: str


class Env(Protocol):
    """A set of tasks. `run` must go through `chat` for every model call; `score` must not raise."""

    name: str

    def items(self, split: str) -> Sequence[Item]: ...

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode: ...

    def score(self, item: Item, output: str) -> Score: ...


def check_splits(env: Env) -> None:
    """Refuse empty splits and items that stand in two of them, by id or by content."""
    seen_ids: dict[str, str] = {}
    seen_content: dict[str, tuple[str, str]] = {}
    for split in SPLITS:
        items = env.items(split)
        if not items:
            raise UserError(f"env '{env.name}': the {split} split is empty; each of train, val and test needs items")
        for item in items:
            if item.id in seen_ids:
                raise UserError(
                    f"env '{env.name}': id '{item.id}' stands in {seen_ids[item.id]} and {split}; "
                    "the splits must be disjoint, or the score proves nothing: remove it from one of them"
                )
            same = seen_content.get(item.content())
            if same and same[0] != split:
                raise UserError(
                    f"env '{env.name}': '{same[1]}' ({same[0]}) and '{item.id}' ({split}) are the same task under two "
                    "ids; the splits must be disjoint: remove one"
                )
            seen_ids[item.id] = split
            seen_content[item.content()] = (split, item.id)


def data_hash(env: Env) -> str:
    """Fingerprint of all items; a run does not go on over other data."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for item in env.items(split):
            digest.update(json.dumps([split, item.model_dump(mode="json")], sort_keys=True).encode())
    return digest.hexdigest()


def closed_set(items: Sequence[Item], most: int = 20) -> tuple[str, ...]:
    """The possible answers, where the items' first answers form a small closed set; else empty."""
    counts: dict[str, int] = {}
    for item in items:
        if not item.answers:
            return ()
        counts[item.answers[0]] = counts.get(item.answers[0], 0) + 1
    small = 2 <= len(counts) <= most and len(counts) * 3 <= len(items)
    return tuple(sorted(counts)) if small else ()
