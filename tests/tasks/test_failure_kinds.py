"""Code says how a task failed: one kind for each failure, also for outputs that look right at first sight."""

from __future__ import annotations

from typing import Any

import pytest

from skillopt.record.trajectory import FailureKind
from skillopt.tasks.failure_kinds import choices_of, count_kinds, failure_kind, named_choice
from skillopt.tasks.scoring import choice, json_fields, number
from support import trajectory


def failure(output: str, expected: str = "T1-N", task: str = "Train to Oslo", **more: Any) -> Any:
    return trajectory(1, task, output=output, answers=(expected,), **more)


def after_tool(result: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Train to Oslo"}, {"role": "tool", "content": result}]


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        ("wrong_answer", failure("T9")),
        ("wrong_answer", failure("Oslo it is", "Oslo")),  # the task says it, too
        ("wrong_answer", failure("<answer>T2</answer> and not T1-N")),
        ("wrong_answer", failure("The fee is 12", "15")),
        ("wrong_form", failure("The code is T1-N, I think.")),
        ("no_answer", failure("The fee depends on the weight.", "15")),
        ("empty", failure(" \n")),
        ("refused", failure("I'm sorry, but I can't help with that.")),
        ("refused", failure("As an AI language model, I cannot provide codes.")),
        ("tool_error", failure("", messages=after_tool("error: there is no tool 'codes'"))),
        ("wrong_answer", failure("T9", messages=after_tool("T9 or T1-N"))),
    ],
)
def test_each_failure_has_its_kind(kind: FailureKind, failed: Any) -> None:
    assert failure_kind(failed) == kind


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("wrong_answer", "(B)"),
        ("wrong_form", "The right order is (A)"),
        ("several_answers", "(A) a big red ball\n(B) a red big ball"),
        ("no_answer", "Size comes before colour, as a rule."),
    ],
)
def test_with_few_possible_answers_an_output_names_one_or_several_or_none(kind: FailureKind, output: str) -> None:
    assert failure_kind(failure(output, "(A)"), choices=("(A)", "(B)")) == kind


def test_a_label_within_a_longer_one_is_not_a_second_answer() -> None:
    labels = ("card", "card lost")
    assert failure_kind(failure("It is card lost", "card lost"), labels) == "wrong_form"
    assert failure_kind(failure("card lost", "card"), labels) == "wrong_answer"


def test_scorers_say_when_they_find_no_answer_or_several() -> None:
    for kind, score in (
        ("no_answer", choice("no idea", ["b"], choices=["x", "y"])),
        ("several_answers", choice("apple or pear", ["apple"], choices=["apple", "pear"])),
        ("no_answer", number("many", ["4"])),
        ("no_answer", json_fields("none", ['{"a": 1}'])),
    ):
        assert failure_kind(failure("some text", "b").model_copy(update={"score": score})) == kind


def test_a_reply_that_reached_the_limit_is_cut_off_whatever_it_holds() -> None:
    cut = failure("The code is T1-N", telemetry={"calls": [{"completion": 5}, {"completion": 64, "cut_off": 1.0}]})
    assert failure_kind(cut) == "cut_off"


def test_kinds_are_counted_over_failures_alone() -> None:
    batch = [failure("T9"), failure("T8"), failure(""), trajectory(2, "Train", hard=1, output="T1")]
    assert count_kinds(batch, ()) == {"wrong_answer": 2, "empty": 1}


def test_answers_that_repeat_are_choices_and_numbers_are_not() -> None:
    assert choices_of(["yes", "no", "yes", "no", ""]) == ("no", "yes")
    assert choices_of(["4", "8", "4", "8"]) == ()
    assert choices_of([f"name {n}" for n in range(6)]) == ()


def test_an_answer_is_named_if_it_is_the_only_choice_in_the_reply() -> None:
    replies = ["It is (B).", "(A)", "(A) or (B)", "none"]
    assert [named_choice(failure(reply, "(A)"), ("(A)", "(B)")) for reply in replies] == ["(B)", "(A)", "", ""]


def test_an_answer_that_the_task_lists_is_an_answer_also_if_no_task_of_the_batch_expects_it() -> None:
    listed = failure("green", "red", "Which colour: red, blue or green?")
    assert failure_kind(listed, ("blue", "red")) == "wrong_answer"
    assert (
        failure_kind(failure("Let me think.", "red", "Which colour: red, blue or green?"), ("blue", "red"))
        == "no_answer"
    )
