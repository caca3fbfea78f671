"""The contract of an analyst, and the patch that it returns: the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

from skillopt.analysts.leaks import Leak
from skillopt.config import Config
from skillopt.envs.base import Trajectory
from skillopt.letters.case import CaseFile
from skillopt.letters.replies import Dropped, Pattern
from skillopt.models.call import Caller
from skillopt.skill import Edit, Skill

Kind = Literal["mixed", "failure", "deep", "batch"]
"""mixed: failures and passes together; failure: failures alone, for small optimizers; deep: failures with one cause;
batch: the whole batch at once, for analysts that count rather than read."""


class Patch(BaseModel):
    """What one analyst made of one minibatch."""

    model_config = ConfigDict(frozen=True)

    id: str
    source: str
    """Analyst and kind, such as `llm/mixed`."""
    trajectory_ids: tuple[str, ...]
    patterns: tuple[Pattern, ...] = ()
    edits: tuple[Edit, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    lost: str = ""
    """Why there is no usable reply; empty when there is."""
    unreachable: bool = False
    unusable: tuple[str, ...] = ()
    """What was wrong with each reply that could not be used, also where asking again helped."""
    leaks: tuple[Leak, ...] = ()
    """Edits that copy long strings from training items."""


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """A few trajectories for one analyst to read."""

    id: str
    kind: Kind
    trajectories: Sequence[Trajectory]
    pattern: str = ""
    """In deep reflection, the cause that the failures share."""


class Analyst(Protocol):
    """Proposes edits from evidence. Every edit must cite trajectories of the minibatch."""

    name: str
    kinds: tuple[Kind, ...]
    """The kinds of minibatch that it wants to see."""
    needs_optimizer: bool
    """Whether it calls the optimizer model at all."""

    async def propose(
        self, skill: Skill, minibatch: Minibatch, case: CaseFile, optimizer: Caller, config: Config
    ) -> Patch: ...
