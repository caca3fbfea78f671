"""Carry: if a rejected candidate broke nothing, its edits stay pending, as in gradient accumulation.

The next step applies the pending edits together with its new edits, and the combined candidate has to pass the gate.
Pending and new edits together never exceed the learning rate. If the combined candidate breaks an item, its pending
edits expire.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from skillopt.record.edits import EditPool
from skillopt.record.state import State
from skillopt.skill import Edit, Skill
from skillopt.training.context import Context
from skillopt.training.edits.aggregate import alone, contradiction, same_edit
from skillopt.training.edits.groups import units
from skillopt.training.edits.update import update
from skillopt.training.gates import strict
from skillopt.training.gates.base import Verdict
from skillopt.training.gates.credit import Credited, broken_rows

CARRIED = "carried/"
"""An edit's source begins with this if a step tries the pending edit again. New edits are selected before pending
edits."""
MOST = 16
"""The maximum number of pending edits; if there are more, the oldest expire."""
UNCONFIRMED = "it broke nothing, but no gate has confirmed it; accept it, and an extended run tries it first"


def carried(credited: Credited, current: Mapping[str, float]) -> tuple[Edit, ...]:
    """The edits of a step that stay pending: all edits of the last candidate that the gate tested, if this candidate
    broke nothing."""
    return credited.last.applied if broke_nothing(credited.last_verdict, current) else ()


def broke_nothing(verdict: Verdict, current: Mapping[str, float]) -> bool:
    """True if the candidate was rejected only because it gained nothing: it broke no item, and it was tried on
    enough items that the current skill solves."""
    if verdict.decision not in {"reject", "indecisive"} or verdict.reason or broken_rows(verdict):
        return False
    tried = sum(current.get(row.item_id, 0.0) >= strict.SOLVED for row in verdict.evidence)
    solved = sum(score >= strict.SOLVED for score in current.values())
    fallen = math.fsum(row.change for row in verdict.evidence)
    return bool(verdict.evidence) and tried >= min(strict.PROOF, solved) and fallen > -strict.HARM


def carry(state: State, skill: Skill, credited: Credited, kept: tuple[Edit, ...], ctx: Context) -> None:
    """Update the pending edits at the end of a step; `skill` is the current skill after the step's gate."""
    done = {edit.id for edit in (*credited.rejected_edits, *credited.candidate.applied)}
    same = (*kept, *credited.candidate.applied)
    left = [e for e in state.pending if e.id not in done and not any(same_edit(e, other) for other in same)]
    waiting = sorted((*left, *kept), key=lambda edit: edit.id)[-MOST:]
    state.pending = [edit for edit in waiting if not update(skill, [edit], ctx).skipped]


def with_pending(pool: EditPool, state: State) -> EditPool:
    """The pool with the pending edits added; if the pool has no new edit, the unchanged pool."""
    if not pool.edits:
        return pool
    new = [pooled.edit for pooled in pool.edits]
    again = [
        alone(edit.model_copy(update={"source": CARRIED + edit.source.removeprefix(CARRIED)}))
        for together in units(state.pending)
        if not any(same_edit(edit, other) or contradiction(edit, other) for edit in together for other in new)
        for edit in together
    ]
    return pool.model_copy(update={"edits": (*pool.edits, *again)})


def slots(pending: Iterable[Edit], most: int) -> int:
    """How many of a step's slots (`most`) are reserved for pending edits: at most half."""
    return min(len(units(pending)), most // 2)
