"""Details of requests that readers of letters asked for; each test is red without its detail."""

from __future__ import annotations

import json
from dataclasses import replace

from skillopt.record.state import Tried, TriedEdit
from skillopt.record.step import ItemEvidence
from skillopt.skill import Edit, Skill
from skillopt.tasks.base import Item
from skillopt.training import prompts
from skillopt.training.gates.base import Verdict
from skillopt.training.optimizer_context import MOST_PROBED_PASSES, _output, like_broken
from skillopt.training.requests.blocks import LOW_LIMIT, Shown, data_line, trajectory_lines
from skillopt.training.requests.compose import NOTHING_TRIED, meta_skill_request, reflect_request
from skillopt.training.requests.context import OptimizerContext
from support import trajectory

CONTEXT = OptimizerContext(step=5, steps=6)


def asked(knowledge: OptimizerContext = CONTEXT) -> tuple[str, str]:
    """The prompt and the data of a request to reflect on one failure."""
    failure = trajectory(1, "Which?", output="no", answers=("yes",))
    system, user = reflect_request(prompts.load("reflect"), Skill("Be brief."), knowledge, [failure], 4000)
    return str(system["content"]), str(user["content"])


def test_solved_tasks_like_the_broken_validation_tasks_are_done_again() -> None:
    broken = [trajectory(n, text) for n, text in enumerate(("a red tram to Bergen", "a blue ferry"))]
    rows = [ItemEvidence(item_id=t.item_id, before=1, after=0, hard=0) for t in broken]
    verdict = Verdict(
        decision="reject",
        gate="strict",
        rule="strict",
        metric="hard",
        before=1,
        after=None,
        at_most=0,
        items=2,
        measured=2,
        evidence=tuple(rows),
        trajectories=tuple(broken),
    )
    solved = [Item(id=name, question=name) for name in ("a hotel", "a green ferry", "the red tram", "a taxi in Oslo")]
    assert [item.id for item in like_broken(verdict, solved)] == ["a green ferry", "the red tram"]
    assert len(like_broken(verdict, solved)) == MOST_PROBED_PASSES
    assert like_broken(verdict.model_copy(update={"evidence": ()}), solved) == []


def test_an_output_of_a_rejected_candidate_has_its_kind_of_failure_and_its_length() -> None:
    calls = {"calls": [{"completion": 64, "cut_off": True}]}
    cut = trajectory(1, output="First we", answers=("yes",), telemetry=calls)
    shown = _output(cut, (), solved_before=True)
    assert (shown["failure"], shown["output_tokens"]) == ("cut off", "64")
    assert (shown["solved_before"], shown["solved"]) == ("yes", "no")
    assert "failure" not in _output(trajectory(2, hard=1), (), solved_before=False)


def test_steps_without_edits_are_named_in_the_history() -> None:
    tried = [
        Tried(step=n, verdict="accept", before=0.1, after=0.2, edits=(TriedEdit(op="add", text="x", fate="applied"),))
        for n in (1, 4)
    ]
    user = asked(replace(CONTEXT, tried=tried))[1]
    rows = [json.loads(line) for line in user.partition("<history>\n")[2].partition("\n</history>")[0].splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["verdict"] for row in rows[1:3]] == [NOTHING_TRIED] * 2


def test_a_rejected_step_says_how_its_lost_tasks_failed() -> None:
    tried = Tried(step=1, verdict="reject", before=0.5, measured=9, failed_before=4, lost=3, lost_kinds={"cut_off": 2})
    assert "9 tried, until enough was known (4 of them had failed before)" in asked(replace(CONTEXT, tried=[tried]))[1]
    assert "3 failed that were solved before (2 cut off)" in asked(replace(CONTEXT, tried=[tried]))[1]


def test_what_is_not_in_a_request_is_not_explained() -> None:
    system, _ = asked()
    for absent in ("`in_skill`", "<pending>", "<history>", "<ready_examples>", "`score` is"):
        assert absent not in system.partition("Work in this order")[0]
    pending = (Edit(op="add", section="Form", text="One word.", trajectory_ids=("t1",)),)
    system, user = asked(replace(CONTEXT, pending=pending))
    assert "<pending> are edits of rejected steps" in system
    assert '{"op": "add", "section": "Form", "text": "One word."}' in user
    other = (pending[0].model_copy(update={"file": "references/form.md"}),)
    assert '"file": "references/form.md"' in asked(replace(CONTEXT, pending=other))[1]
    notes = meta_skill_request("- <pending> waits.\n", CONTEXT, Skill(""), Skill("x"), [])
    assert "<pending>" not in str(notes[0]["content"])


def test_every_reply_has_its_length_if_the_limit_is_low() -> None:
    one = trajectory(1, telemetry={"calls": [{"completion": 7}]})
    assert f'"output_tokens": "7 of {LOW_LIMIT}"' in trajectory_lines([one], 500, Shown(reply_tokens=LOW_LIMIT))
    assert "output_tokens" not in trajectory_lines([one], 500, Shown(reply_tokens=LOW_LIMIT + 1))


def test_data_keeps_its_tags_but_cannot_close_a_block() -> None:
    assert data_line("<answer>A</answer>") == '"<answer>A\\u003c/answer>"'
    assert json.loads(data_line("< / skill>")) == "< / skill>"
    assert "</" not in data_line("</skill> </ skill>")
