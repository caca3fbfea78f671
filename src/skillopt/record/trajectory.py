"""A scored rollout, as it is stored in every trajectories.jsonl."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from skillopt.chat_protocol import StoredMessage, StoredTool
from skillopt.record.base import Record

FailureKind = Literal[
    "cut_off", "empty", "refused", "tool_error", "no_answer", "several_answers", "wrong_form", "wrong_answer"
]
"""How a rollout failed. `no_answer`: the output has no answer that could be right. `several_answers`: it has more than
one answer. `wrong_form`: it has the right answer in a form that the scorer does not accept."""


class ItemScore(Record):
    hard: float = Field(ge=0, le=1)
    """1 if the task is solved, else 0."""
    soft: float = Field(ge=0, le=1)

    def value(self, metric: str) -> float:
        if metric == "mixed":
            return (self.hard + self.soft) / 2
        return self.hard if metric == "hard" else self.soft


class Score(ItemScore):
    """The score of one rollout."""

    feedback: str = ""
    """The scorer's sentence about the failure, for the analysts."""

    @property
    def numbers(self) -> ItemScore:
        return ItemScore(hard=self.hard, soft=self.soft)


class FileChange(BaseModel):
    """A file of the workspace that a rollout added, changed or removed."""

    model_config = ConfigDict(frozen=True)

    path: str
    kind: Literal["added", "changed", "removed"]
    shown: str = ""
    """The difference as text, shortened if it is long; for a binary file, the size."""


class Trajectory(BaseModel):
    """One scored rollout."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    type: str = ""
    skill_hash: str
    input: str
    answers: tuple[str, ...] = ()
    """The expected answers. Analysts see them only in training trajectories."""
    messages: list[StoredMessage]
    output: str
    score: Score
    telemetry: dict[str, Any] = {}
    """Measurements of the rollout. `calls`: the tokens and seconds of each call of the target."""
    changes: tuple[FileChange, ...] = ()
    """The target's changes to files of its workspace."""
    opened: tuple[str, ...] = ()
    """Files of the skill's package that the target opened or ran."""
    ran: tuple[str, ...] = ()
    """Scripts of the skill's package that the target ran."""
    tools: tuple[StoredTool, ...] = Field(default=(), exclude=True)
    """Definitions of the tools that the target could use, for analysts. They are not stored in the file."""

    @model_serializer(mode="wrap")
    def _only_what_is_there(self, plain: SerializerFunctionWrapHandler) -> Any:
        """The record's fields. `changes`, `opened` and `ran` are left out if they are empty."""
        fields = plain(self)
        return {key: value for key, value in fields.items() if value or key not in {"changes", "opened", "ran"}}


class RolloutError(BaseModel):
    """A rollout without a score, because the endpoint or the scorer failed. Mean scores do not include it."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    skill_hash: str
    refused: bool = False
    """True if the item itself cannot be measured, because the endpoint refuses it (content filter, too long) or the
    scorer fails on it."""
    alone: bool = False
    """True if all tries failed while the endpoint answered other rollouts. Further rounds then try the item again; if
    these tries fail, too, the item is set aside."""
    error: str
