"""Review: a person decides between opposite edits. The next step tries the chosen edit at the gate like any other edit.

Each file has only one writer: the trainer writes `review/conflicts.jsonl`, and `skillopt review` writes
`review/decisions.jsonl`. The run's state and the step's record say which step used a decision. A step that is done
again after a crash finds the same decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Choice, Conflict, Decision, EditPool, FiledConflict
from skillopt.record.files import append_jsonl, digest
from skillopt.record.run import Run
from skillopt.record.state import State
from skillopt.skill import Edit
from skillopt.skill.edit import unsafe
from skillopt.skill.tokens import count_tokens
from skillopt.training.edits.aggregate import alone, same_edit
from skillopt.training.edits.select import REVIEW

CHOICES: tuple[Choice, ...] = ("a", "b", "both", "neither")


def same_question(one: Conflict, other: Conflict) -> bool:
    """True if two conflicts are between the same edits, in either order."""
    if one.b is None or other.b is None:
        return one.b is other.b and same_edit(one.a, other.a)
    straight = same_edit(one.a, other.a) and same_edit(one.b, other.b)
    return straight or (same_edit(one.a, other.b) and same_edit(one.b, other.a))


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """The pool after review, with the decisions that were used."""

    pool: EditPool
    used: list[Decision] = field(default_factory=list)
    """Decisions that this step is the first to use."""
    turned_down: dict[str, str] = field(default_factory=dict)
    """The edits that a person decided against: for each edit id, the id of the conflict."""


def file_conflicts(run: RunDirectory, step: int, conflicts: Sequence[Conflict]) -> None:
    """Add a step's conflicts to the run's file, except for conflicts that are in the file already."""
    asked = Run(run).conflicts
    new = [c for c in conflicts if not any(same_question(other, c) for other in asked)]
    first = 1 + sum(other.step == step for other in asked)
    rows = [{"id": f"{step}-{n}", "step": step, **c.model_dump()} for n, c in enumerate(new, first)]
    append_jsonl(run.conflicts, rows)


def review(pool: EditPool, run: RunDirectory, step: int, used_before: dict[str, int]) -> Reviewed:
    """Apply people's decisions to the pool: add the edits that people chose, and mark the edits that they decided
    against."""
    decided = Run(run).decisions
    closed = [(c, decided[c.id]) for c in Run(run).conflicts if c.id in decided and c.step < step]
    fresh = [(c, d) for c, d in closed if c.id not in used_before]
    open_conflicts: list[Conflict] = []
    freed: list[Edit] = []
    for conflict in pool.conflicts:
        if any(same_question(earlier, conflict) for earlier, _ in closed):
            freed += conflict.sides.values()
        else:
            open_conflicts.append(conflict)
    pooled = {p.edit.id: p for p in pool.edits} | {edit.id: alone(edit) for edit in freed}
    losers = [(edit, c.id) for c, d in closed for edit in losing_side(c, d)]
    down = {name: cid for name, p in pooled.items() for edit, cid in losers if same_edit(edit, p.edit)}
    chosen = [alone(edit) for c, d in fresh for edit in chosen_edits(c, d, step)]
    doubled = {name for name, p in pooled.items() if any(same_edit(p.edit, c.edit) for c in chosen)}
    edits = (*chosen, *(p for name, p in pooled.items() if name not in doubled))
    kept = pool.model_copy(update={"edits": edits, "conflicts": tuple(open_conflicts)})
    return Reviewed(pool=kept, used=[d for _, d in fresh], turned_down=down)


def chosen_edits(conflict: FiledConflict, decision: Decision, step: int) -> list[Edit]:
    """The edits that a decision asks for, with the conflict's evidence."""
    if decision.choice == "own":
        cited = tuple(sorted({tid for edit in conflict.sides.values() for tid in edit.trajectory_ids}))
        sides = {"own": conflict.a.model_copy(update={"text": decision.text, "trajectory_ids": cited, "rationale": ""})}
    else:
        wanted = {"both": "ab", "neither": ""}.get(decision.choice, decision.choice)
        sides = {side: edit for side, edit in conflict.sides.items() if side in wanted}
    return [
        edit.model_copy(update={"id": f"{step:04d}-review-{conflict.id}-{side}", "source": f"{REVIEW}{conflict.id}"})
        for side, edit in sides.items()
    ]


def losing_side(conflict: FiledConflict, decision: Decision) -> list[Edit]:
    """The edits of a conflict that a decision rejects; they must not be proposed again."""
    kept = {"a": {"a"}, "b": {"b"}, "both": {"a", "b"}}.get(decision.choice, set())
    return [edit for side, edit in conflict.sides.items() if side not in kept]


def checked_decision(run: RunDirectory, conflict_id: str, choice: str, text: str = "") -> Decision:
    """Check a decision and return it; the caller writes it. A decision that a step has used cannot be changed."""
    ids = [c.id for c in Run(run).conflicts]
    if conflict_id not in ids:
        listed = ", ".join(ids) or "none"
        raise UserError(f"{run.root}: has no conflict '{conflict_id}'; the conflicts are: {listed}")
    if choice not in (*CHOICES, "own"):
        raise UserError(f"'{choice}' is not a choice for {conflict_id}; choose one of: {', '.join(CHOICES)}")
    if step := State.read(run.state).reviewed.get(conflict_id):
        raise UserError(f"conflict {conflict_id}: its decision was used in step {step} and cannot be changed")
    if choice == "own":
        _check_text(text, Run(run).config.optimizer.max_edit_tokens)
    return Decision.model_validate({"conflict": conflict_id, "choice": choice, "text": text})


def write_decisions(run: RunDirectory, made: Sequence[Decision]) -> None:
    rows = [decision.model_dump(mode="json") for decision in made]
    append_jsonl(run.decisions, [{**row, "check": digest(row)} for row in rows])


def _check_text(text: str, most: int) -> None:
    if not text.strip():
        raise UserError(f"the text of your own edit is empty; write a text, or choose one of: {', '.join(CHOICES)}")
    if problem := unsafe(text):
        raise UserError(f"the text of your own edit {problem[1]}")
    if count_tokens(text) > most:
        raise UserError(f"the text of your own edit is longer than {most} tokens (optimizer.max_edit_tokens)")
