"""A scored rollout, as it is stored in every trajectories.jsonl."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from skillopt.chat_protocol import StoredMessage, StoredTool
from skillopt.record.base import Record

FailureKind = Literal[
    "cut_off", "empty", "refused", "tool_error", "no_answer", "several_answers", "wrong_form", "wrong_answer"
]
"""How a rollout failed: `no_answer` holds none that could be right, `several_answers` more than one, `wrong_form` the
right one in a form that the scorer does not accept."""


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
    """The scorer's sentence on the failure; analysts read it."""

    @property
    def numbers(self) -> ItemScore:
        return ItemScore(hard=self.hard, soft=self.soft)


class FileChange(BaseModel):
    """A rollout's change of one file of its workspace."""

    model_config = ConfigDict(frozen=True)

    path: str
    kind: Literal["added", "changed", "removed"]
    shown: str = ""
    """The difference as text, cut if it is long; for binary files, the size."""


class Trajectory(BaseModel):
    """One scored rollout."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    type: str = ""
    skill_hash: str
    input: str
    answers: tuple[str, ...] = ()
    """The expected answer, for analysts; they get only training trajectories."""
    messages: list[StoredMessage]
    output: str
    score: Score
    telemetry: dict[str, Any] = {}
    """`calls`: tokens and seconds of each call of the target."""
    changes: tuple[FileChange, ...] = ()
    """The target's changes of the files of its workspace."""
    opened: tuple[str, ...] = ()
    """Files of the skill's package that the target opened or ran."""
    ran: tuple[str, ...] = ()
    """Scripts of the skill's package that the target ran."""
    tools: tuple[StoredTool, ...] = Field(default=(), exclude=True)
    """Definitions of the tools that the target was offered, for analysts; not stored with every trajectory."""

    @model_serializer(mode="wrap")
    def _only_what_is_there(self, plain: SerializerFunctionWrapHandler) -> Any:
        """Without the fields for files if the task has none."""
        fields = plain(self)
        return {key: value for key, value in fields.items() if value or key not in {"changes", "opened", "ran"}}


class RolloutError(BaseModel):
    """A rollout without a score, because the endpoint failed. It enters no mean."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    skill_hash: str
    refused: bool = False
    """The item itself cannot be measured: the endpoint refuses it (content filter, too long), or its scorer
    fails."""
    alone: bool = False
    """All its tries failed, while other rollouts were answered: if further rounds fail as well, it is set aside."""
    error: str
