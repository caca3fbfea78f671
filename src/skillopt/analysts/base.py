"""The contract of an analyst, and the patch that it returns: the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.leaks import Leak
from skillopt.config import Config
from skillopt.envs.base import Trajectory
from skillopt.models.call import Caller
from skillopt.run.state import Rejected
from skillopt.skill import Edit, Skill

Kind = Literal["failure", "success", "deep", "batch"]
"""`batch` is the whole batch at once, for analysts that count rather than read."""


class Pattern(BaseModel):
    """A cause of failure, and the trajectories that show it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    cause: str = ""
    trajectory_ids: tuple[str, ...] = ()


class Dropped(BaseModel):
    """An edit that could not be used as it was, and why."""

    model_config = ConfigDict(frozen=True)

    kind: str
    reason: str
    edit: dict[str, object]


class Patch(BaseModel):
    """What one analyst made of one minibatch."""

    model_config = ConfigDict(frozen=True)

    id: str
    source: str
    """Analyst and kind, such as `llm/failure`."""
    trajectory_ids: tuple[str, ...]
    patterns: tuple[Pattern, ...] = ()
    edits: tuple[Edit, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    lost: str = ""
    """Why there is no usable reply; empty when there is."""
    unreachable: bool = False
    unusable: tuple[str, ...] = ()
    """What was wrong with each reply that could not be used, the ones that asking again mended among them."""
    leaks: tuple[Leak, ...] = ()
    """Edits that copy long strings from training items."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What reflection knows from before: the meta skill, and the edits that gates turned down."""

    notes: str = ""
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """A few trajectories for one analyst to read."""

    id: str
    kind: Kind
    trajectories: Sequence[Trajectory]
    pattern: str = ""
    """In deep reflection, the cause that the failures share."""
    known_patterns: Mapping[str, str] = field(default_factory=dict)
    """The env author's own names for causes of failure, and what they mean."""


class Analyst(Protocol):
    """Proposes edits from evidence. Every edit must cite trajectories of the minibatch."""

    name: str
    kinds: tuple[Kind, ...]
    """The kinds of minibatch that it wants to see."""
    needs_optimizer: bool
    """Whether it calls the optimizer model at all."""

    async def propose(
        self, skill: Skill, minibatch: Minibatch, memory: Memory, optimizer: Caller, config: Config
    ) -> Patch: ...
