"""The protocol of an analyst. An analyst proposes edits; its patch is the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skillopt.config import Config
from skillopt.models.call import Caller
from skillopt.models.structured import CheckedReply
from skillopt.record.edits import Patch
from skillopt.skill import Skill
from skillopt.tasks.base import Trajectory
from skillopt.training.requests.context import OptimizerContext

Kind = Literal["mixed", "failure", "deep", "batch"]
"""The kinds of minibatch. `mixed`: failures and passes together. `failure`: only failures, for small optimizers.
`deep`: failures with one cause. `batch`: the whole batch, for analysts that count rather than read."""


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """The trajectories that an analyst reads at once."""

    id: str
    kind: Kind
    trajectories: Sequence[Trajectory]
    pattern: str = ""
    """In deep reflection, the cause that the failures share."""


def with_answer(patch: Patch, answer: CheckedReply[Any]) -> Patch:
    """Add the problems of the optimizer's replies to the patch. If no reply was usable, the patch's field `lost` says
    why."""
    lost = {} if answer.value is not None else {"lost": answer.lost, "unreachable": answer.unreachable}
    return patch.model_copy(update={"unusable": answer.unusable, **lost})


class Analyst(Protocol):
    """Proposes edits from trajectories. Every edit must cite trajectories of the minibatch."""

    name: str
    kinds: tuple[Kind, ...]
    """The kinds of minibatch that the analyst reads."""
    needs_optimizer: bool
    """True if the analyst calls the optimizer model."""

    async def propose(
        self, skill: Skill, minibatch: Minibatch, knowledge: OptimizerContext, optimizer: Caller, config: Config
    ) -> Patch: ...
