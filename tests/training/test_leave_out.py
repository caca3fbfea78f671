"""A training task that stands in the skill as an example is rolled out without that example."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skillopt.skill import Skill
from skillopt.skill.examples import without_example
from skillopt.tasks.base import Trajectory
from skillopt.training.rollout import rollout
from support import context

EXAMPLES = (
    "# Examples\n\nTask: Say 2.\nReply: 2\n\nTask: Say 3.\nReply: three\nand more\n- Task:  Say\n  4.\n  Reply: 4\n"
)


@pytest.mark.parametrize(
    ("task", "left"),
    [
        ("Say 2.", "# Examples\n\nTask: Say 3.\nReply: three\nand more\n- Task:  Say\n  4.\n  Reply: 4\n"),
        ("Say 3.", "# Examples\n\nTask: Say 2.\nReply: 2\n\n- Task:  Say\n  4.\n  Reply: 4\n"),
        ("Say 4.", "# Examples\n\nTask: Say 2.\nReply: 2\n\nTask: Say 3.\nReply: three\nand more\n"),
        ("Say", EXAMPLES),
        ("three", EXAMPLES),
        ("", EXAMPLES),
    ],
)
def test_only_the_example_of_this_very_task_goes(task: str, left: str) -> None:
    assert without_example(EXAMPLES, task) == left


def test_a_task_without_a_reply_is_no_example() -> None:
    text = "Task: Say 2.\n\nBe kind.\n"
    assert without_example(text, "Say 2.") == text


def check_leave_out() -> None:
    """The skill holds nothing but the batch's tasks with their answers; a gate would find them all solved."""
    ctx = context()
    items = ctx.env.items("train")[:4]
    skill = Skill("# Examples\n\n" + "\n\n".join(f"Task: {item.question}\nReply: {item.answer}" for item in items))
    for stage, kept in (("rollout", 3), ("gate", 4)):
        results: list[Any] = asyncio.run(rollout(skill, items, ctx.at(1, 1), tag=stage, stage=stage))
        for item, result in zip(items, results, strict=True):
            assert isinstance(result, Trajectory)
            assert result.skill_hash == skill.hash
            system = result.messages[0]
            shown = str(system.get("content", skill.text))
            assert shown.count("Task: ") == kept
            assert (item.question in shown) == (stage == "gate")


def test_a_rollout_that_teaches_leaves_the_tasks_own_example_out_and_a_gate_does_not() -> None:
    check_leave_out()


def test_unplugged_that_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillopt.training.rollout.without_example", lambda text, task: text)
    with pytest.raises(AssertionError):
        check_leave_out()
