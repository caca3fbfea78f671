"""A plain function as an analyst: it is given the skill and a batch's trajectories, and gives edits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from skillopt import plugins
from skillopt.analysts.base import Analyst, Kind, Minibatch, Patch
from skillopt.config import Config
from skillopt.envs.base import Trajectory
from skillopt.errors import UserError
from skillopt.letters.case import CaseFile
from skillopt.letters.replies import Dropped
from skillopt.models.call import Caller
from skillopt.skill import Edit, Skill

Propose = Callable[[Skill, Sequence[Trajectory]], Any]
"""Gives edits, as `Edit` or as dicts of its fields; may be async. Each edit cites trajectories of the batch."""


class FunctionAnalyst:
    """An analyst that sees the whole batch at once and calls no optimizer."""

    kinds: tuple[Kind, ...] = ("batch",)
    needs_optimizer = False

    def __init__(self, propose: Propose) -> None:
        self.name = plugins.named(propose)
        self.function = propose

    async def propose(
        self, skill: Skill, minibatch: Minibatch, case: CaseFile, optimizer: Caller, config: Config
    ) -> Patch:
        given = self.function(skill, minibatch.trajectories)
        rows = await given if inspect.isawaitable(given) else given
        shown = {trajectory.id for trajectory in minibatch.trajectories}
        kept, dropped = self._checked(rows or (), shown)
        return Patch(
            id=f"{minibatch.id}-{self.name}",
            source=f"{self.name}/batch",
            trajectory_ids=tuple(sorted(shown)),
            edits=tuple(kept),
            dropped=tuple(dropped),
        )

    def _checked(self, rows: Iterable[Any], shown: set[str]) -> tuple[list[Edit], list[Dropped]]:
        kept: list[Edit] = []
        dropped: list[Dropped] = []
        for row in rows:
            try:
                edit = row if isinstance(row, Edit) else Edit.model_validate(row)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"])
                raise UserError(f"analyst '{self.name}': {where}: {first['msg']} (got {row!r})") from None
            cited = tuple(i for i in edit.trajectory_ids if i in shown)
            if cited:
                kept.append(edit.model_copy(update={"trajectory_ids": cited, "source": f"{self.name}/batch"}))
            else:
                reason = "cites no trajectory of its batch"
                dropped.append(Dropped(kind="no_trajectory", reason=reason, edit=edit.model_dump(mode="json")))
        return kept, dropped


def as_analyst(part: Analyst | Propose | type) -> Analyst:
    """An analyst as it is; a function wrapped in one."""
    made: Any = plugins.instance(part)
    if hasattr(made, "propose"):
        analyst: Analyst = made
        return analyst
    if callable(made):
        return FunctionAnalyst(made)
    raise UserError(f"analyst {made!r}: must be a function of (skill, trajectories), or an object with propose()")
