"""The analysts, which propose edits. Each analyst reads a minibatch of scored trajectories and returns a patch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import JsonValue, ValidationError

from skillopt import plugins
from skillopt.config import Config
from skillopt.errors import DiskError, SkillOptError, UserError
from skillopt.models.call import Caller
from skillopt.record.edits import Patch
from skillopt.skill import Edit, Skill
from skillopt.tasks.base import Trajectory
from skillopt.training.analysts.base import Analyst, Kind, Minibatch
from skillopt.training.analysts.brief import BriefAnalyst
from skillopt.training.analysts.exemplar import ExemplarAnalyst
from skillopt.training.analysts.llm import LLMAnalyst
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.replies import read_edits

ANALYSTS: dict[str, type[Analyst]] = {"brief": BriefAnalyst, "exemplar": ExemplarAnalyst, "llm": LLMAnalyst}
Propose = Callable[[Skill, Sequence[Trajectory]], Any]
"""A function that gets the skill and the batch's trajectories, and returns edits: `Edit` objects, or dicts with the
fields of an `Edit`. Each edit cites trajectories of the batch. The function may be async; if it is not, it runs in a
thread."""


def open_analysts(names: Sequence[str]) -> list[Analyst]:
    """The analysts with these names: built in, or registered by installed packages as `skillopt.analysts`."""
    return [ANALYSTS[name]() if name in ANALYSTS else _registered(name) for name in names]


def _registered(name: str) -> Analyst:
    return as_analyst(plugins.load("analysts", name, key="gradient.analysts", known=ANALYSTS))


def as_analyst(part: Analyst | Propose | type) -> Analyst:
    """Return `part` as an analyst: an analyst is returned unchanged, and a plain function is wrapped."""
    made: Any = plugins.instance(part)
    if hasattr(made, "propose"):
        analyst: Analyst = made
        return analyst
    if callable(made):
        return FunctionAnalyst(made)
    raise UserError(f"analyst {made!r}: must be a function of (skill, trajectories), or an object with propose()")


class FunctionAnalyst:
    """An analyst that calls a plain function with the whole batch. It does not call the optimizer."""

    kinds: tuple[Kind, ...] = ("batch",)
    needs_optimizer = False

    def __init__(self, propose: Propose) -> None:
        self.name = plugins.named(propose)
        self.function = propose

    async def propose(
        self, skill: Skill, minibatch: Minibatch, knowledge: OptimizerContext, optimizer: Caller, config: Config
    ) -> Patch:
        try:
            rows = await plugins.called(partial(self.function, skill, minibatch.trajectories))
            if inspect.isgenerator(rows):
                rows = await plugins.called(partial(list, rows))
        except (SkillOptError, *DiskError):
            raise
        except Exception as error:
            raise UserError(f"analyst '{self.name}': {type(error).__name__}: {error}") from error
        checked = [self._checked(row) for row in rows or ()]
        ids = sorted({trajectory.id for trajectory in minibatch.trajectories})
        source = f"{self.name}/batch"
        edits, dropped = read_edits(checked, ids, source, len(checked))
        name = f"{minibatch.id}-{self.name}"
        return Patch(id=name, source=source, trajectory_ids=tuple(ids), edits=edits, dropped=dropped)

    def _checked(self, row: Any) -> dict[str, JsonValue]:
        """The fields of an edit that the function returned. If the edit is not valid, this is a mistake of the
        function, so an error is raised."""
        try:
            return Edit.model_validate(row).model_dump(mode="json")
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UserError(f"analyst '{self.name}': {where}: {first['msg']} (got {row!r})") from None
