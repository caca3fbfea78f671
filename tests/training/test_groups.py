"""Edits that name the same group are selected, left out, blamed and counted as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt.record.edits import EditPool, Patch, Pooled
from skillopt.sim.model import TOPICS, code_for
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import SizeLimits, SkillBuilder
from skillopt.training.edits import groups
from skillopt.training.edits.aggregate import aggregate
from skillopt.training.edits.groups import units
from skillopt.training.edits.select import select
from skillopt.training.gates.credit import suspected
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.replies import read_edits, reflect_schema
from support import Spy, context

SKILL = Skill("# Codes\n\n- For maple, answer KX-42.\n")


def edit(number: int, text: str, group: str = "", cited: str = "1", **fields: Any) -> Edit:
    ids = tuple(f"t{n}" for n in cited)
    fields = {"op": "add", "section": "Rules", **fields}
    return Edit(id=f"0001-00-{number:02d}", text=text, group=group, trajectory_ids=ids, **fields)


def chosen(edits: Sequence[Edit], rate: int) -> list[str]:
    pool = EditPool(edits=tuple(Pooled(edit=e, support=len(e.trajectory_ids), merged=(e.id,)) for e in edits))
    return sorted(row.edit.text for row in select(pool, rate, SKILL, context()) if row.selected)


STEPS = [edit(0, "Steps.", "steps", "12"), edit(1, "Examples of the steps.", "steps", "3")]
OTHERS = [edit(2, "Be kind.", cited="12"), edit(3, "Be slow.", cited="45")]


def check_groups() -> None:
    """The group covers three failures together, and takes one place."""
    assert chosen([*STEPS, *OTHERS], 1) == ["Examples of the steps.", "Steps."]
    assert chosen([*STEPS, *OTHERS], 2) == ["Be slow.", "Examples of the steps.", "Steps."]
    broken = [item for item in context().env.items("val") if TOPICS[0] in item.question][:2]
    blamed = suspected([*STEPS, *OTHERS], broken, context().env.items("val"))
    assert [[e.text for e in unit] for unit in blamed if len(unit) > 1] == [["Steps.", "Examples of the steps."]]


def test_a_group_is_selected_counted_and_blamed_as_one() -> None:
    check_groups()


def test_unplugged_that_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "unit", lambda edit: edit.id)
    with pytest.raises(AssertionError):
        check_groups()


def test_a_group_of_which_one_edit_cannot_be_applied_is_left_out_as_a_whole() -> None:
    unfit = edit(1, "x", "steps", op="modify", anchor="- For nobody.")
    assert chosen([STEPS[0], unfit, *OTHERS], 4) == ["Be kind.", "Be slow."]
    builder = SkillBuilder(SKILL, SizeLimits())
    assert builder.add_all([STEPS[0], unfit])
    assert builder.skill == SKILL
    assert builder.add_all(STEPS) is None
    assert "Examples of the steps." in builder.skill.text


def test_groups_of_two_replies_are_two_although_they_have_one_name() -> None:
    other = STEPS[1].model_copy(update={"id": "0001-01-00"})
    assert len(units([STEPS[0], other])) == 2


def test_a_reply_may_have_more_edits_than_the_rate_if_they_are_in_groups() -> None:
    rows = [e.model_dump(mode="json") for e in (*STEPS, *OTHERS)]
    edits, dropped = read_edits(rows, ["t1", "t2", "t3", "t4", "t5"], "llm/mixed", 2)
    assert ([e.text for e in edits], [d.kind for d in dropped]) == (
        ["Steps.", "Examples of the steps.", "Be kind."],
        ["too_many"],
    )
    many = [edit(n, f"Rule {n}.", "all").model_dump(mode="json") for n in range(groups.MOST + 1)]
    assert len(read_edits(many, ["t1"], "llm/mixed", 2)[0]) == groups.MOST


def test_a_reply_without_groups_is_fine_and_an_edit_without_one_is_stored_without_one() -> None:
    schema: Any = reflect_schema("reflect", ["t1"], 4).body["properties"]["edits"]  # type: ignore[index, call-overload]
    assert "group" in schema["items"]["properties"]
    assert "group" not in schema["items"]["required"]
    assert "group" not in OTHERS[0].model_dump()
    assert STEPS[0].model_dump()["group"] == "steps"


def test_blame_falls_on_a_whole_group(tmp_path: Path) -> None:
    from test_credit import GOOD, IDLE, credited, names, rule

    changes = {"op": "modify", "section": ""}
    harm = [edit(n, rule(topic, "ZZ-00"), "codes", anchor=rule(topic), **changes) for n, topic in enumerate(TOPICS[:2])]
    found = credited(tmp_path, [*GOOD, IDLE, *harm]).found
    assert found.verdict.accepted
    assert names(found.left_out) == names(harm)
    assert code_for(TOPICS[0], 0) in found.candidate.skill.text


def test_the_optimizer_merges_single_edits_and_a_group_stays_as_it_is() -> None:
    patches = [
        Patch(id="p1", source="llm/mixed", trajectory_ids=(), edits=(*STEPS, OTHERS[0])),
        Patch(id="p2", source="llm/deep", trajectory_ids=(), edits=(OTHERS[1],)),
    ]
    spy = Spy("sim:world")
    ctx = context(optimizer=spy)
    pool = asyncio.run(aggregate(patches, SKILL, OptimizerContext(), ctx))
    assert [pooled.edit for pooled in pool.edits if pooled.edit.group] == STEPS
    [request] = spy.asked("merge")
    assert "Be kind." in request
    assert "Steps." not in request
    assert asyncio.run(aggregate(patches[:1], SKILL, OptimizerContext(), ctx)).asked == ()
