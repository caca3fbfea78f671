"""What a run tells its optimizer besides the batch: possible answers, the minimal remedy, earlier outcomes."""

from __future__ import annotations

import pytest

from skillopt.record.edits import Patch, Pattern
from skillopt.record.state import ShortForm, State, Tried
from skillopt.skill import Edit
from skillopt.tasks.base import Item
from skillopt.training import optimizer_context as module
from skillopt.training.optimizer_context import optimizer_context
from skillopt.training.reflect import deep_minibatches
from support import context, trajectory


def test_the_possible_answers_are_those_of_the_whole_training_split(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = context()
    items = [Item(id=f"t{n}", question="Which?", answers=(("red", "blue")[n % 2],)) for n in range(8)]
    monkeypatch.setattr(ctx.env, "items", lambda split: items)
    knowledge = optimizer_context(State(), 4.0, ctx, items[:4:2])
    assert knowledge.choices_in([]) == ("blue", "red"), "the batch expects only red"
    assert optimizer_context(State(), 4.0, ctx).choices is None, "an epoch's end has no batch"


@pytest.mark.parametrize(("accepted", "step", "shown"), [(True, 9, True), (False, 3, True), (False, 4, False)])
def test_a_minimal_remedy_is_shown_while_the_skill_has_it_or_right_after_its_step(
    accepted: bool, step: int, shown: bool
) -> None:
    form = ShortForm(step=2, text="One word.", accepted=accepted, score=0.5, at_most=0.5, complete=None)
    knowledge = optimizer_context(State(short_form=form), 4.0, context().at(1, step))
    assert (knowledge.short_form is not None) == shown


def test_outcomes_count_from_the_first_accepted_version_on(monkeypatch: pytest.MonkeyPatch) -> None:
    since: list[int] = []
    monkeypatch.setattr(module, "never_solved", lambda first, ctx: since.append(first) or {})
    monkeypatch.setattr(module, "earlier_outcomes", lambda ids, first, ctx: since.append(first) or {})
    tried = [Tried(step=n, epoch=1, verdict=v, before=0.0) for n, v in ((1, "reject"), (2, "accept"), (3, "accept"))]
    ctx = context().at(1, 4)
    optimizer_context(State(tried=tried), 4.0, ctx, ctx.env.items("train")[:2])
    assert since == [3, 3]


def test_a_cause_is_answered_if_edits_together_cite_each_of_its_failures() -> None:
    batch = [trajectory(n) for n in range(4)]
    cause = Pattern(name="sums", cause="It adds wrongly.", trajectory_ids=("t0", "t1", "t2", "t3"))

    def deep(*cited: str) -> int:
        edits = tuple(Edit(op="add", text=ids, pattern="other", trajectory_ids=tuple(ids.split())) for ids in cited)
        patch = Patch(id="p", source="llm/mixed", trajectory_ids=(), patterns=(cause,), edits=edits)
        return len(deep_minibatches(batch, [patch], context()))

    assert deep("t0 t1", "t2 t3") == 0
    assert deep("t0 t1", "t2") == 1
