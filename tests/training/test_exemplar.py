"""The analyst that needs no LLM: what it writes is read off training trajectories, and helps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from skillopt.config import Config
from skillopt.models.base import ChatReply, ChatRequest, NoModel
from skillopt.models.call import Caller
from skillopt.record.edits import Patch
from skillopt.record.state import Rejected
from skillopt.skill import Skill, apply_edits
from skillopt.tasks.base import Score, Trajectory
from skillopt.training.analysts.base import Minibatch
from skillopt.training.analysts.exemplar import ExemplarAnalyst, form_of
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.trainer import TrainingLoop
from support import REPO

TICKETS = {
    "login": (
        "red",
        ["I cannot sign in", "The password is refused", "Locked out of my account", "No sign in code came"],
    ),
    "payment": ("blue", ["Charged twice", "Wrong amount charged", "The card was charged for nothing", "No refund yet"]),
}


def trajectories(*, types: bool = True, hard: float = 0.0) -> list[Trajectory]:
    tasks = [(task, kind, answer) for kind, (answer, tasks) in TICKETS.items() for task in tasks]
    score = Score(hard=hard, soft=hard)
    return [
        Trajectory(
            id=f"t{number:02d}",
            item_id=task,
            type=kind if types else "",
            skill_hash="",
            input=task,
            answers=(answer,),
            messages=[],
            output="It depends.",
            score=score,
        )
        for number, (task, kind, answer) in enumerate(tasks)
    ]


ALONE = Config.parse({"gradient": {"analysts": ["exemplar"]}})


def propose(rows: list[Trajectory], skill: str = "", rejected: tuple[Rejected, ...] = ()) -> Patch:
    unused: Caller = None  # type: ignore[assignment]
    batch = Minibatch(id="m", kind="batch", trajectories=rows)
    return asyncio.run(
        ExemplarAnalyst().propose(Skill(skill), batch, OptimizerContext(rejected=rejected), unused, ALONE)
    )


def texts(patch: Patch) -> str:
    return "\n".join(edit.text for edit in patch.edits)


def test_the_closed_set_of_answers_is_named() -> None:
    assert "The possible answers are: blue, red." in texts(propose(trajectories()))


def test_where_the_type_settles_the_answer_examples_name_it_first() -> None:
    found = texts(propose(trajectories()))
    assert "- This is about login, so <answer>red</answer>" in found
    assert "\nReply: This is about payment, so <answer>blue</answer>" in found


def test_without_types_telling_words_and_plain_examples_are_given() -> None:
    found = texts(propose(trajectories(types=False)))
    assert "- blue: charged" in found
    assert "Reply: blue" in found
    assert "This is about" not in found


def test_every_edit_cites_trajectories_and_can_be_applied() -> None:
    edits = [e.model_copy(update={"id": str(n)}) for n, e in enumerate(propose(trajectories()).edits)]
    assert all(set(edit.trajectory_ids) <= {t.id for t in trajectories()} for edit in edits)
    assert apply_edits(Skill("Sort tickets.\n"), edits).skipped == ()


def test_nothing_is_proposed_twice() -> None:
    first = propose(trajectories())
    numbered = [e.model_copy(update={"id": str(n)}) for n, e in enumerate(first.edits)]
    grown = apply_edits(Skill(""), numbered).skill
    again = texts(propose(trajectories(), grown.text))
    assert "possible answers" not in again
    assert "- This is about login" not in again
    assert all(line not in again for line in texts(first).splitlines() if line.startswith("Task:"))


def test_what_a_gate_turned_down_is_not_proposed_again() -> None:
    first = propose(trajectories()).edits
    rejected = tuple(Rejected(step=1, edit=edit) for edit in first)
    assert not {edit.text for edit in first} & {edit.text for edit in propose(trajectories(), rejected=rejected).edits}


def test_a_new_answer_joins_the_stated_set() -> None:
    skill = "## Answer\n\nThe possible answers are: green, red. Answer with one of them and nothing else.\n"
    (edit,) = [e for e in propose(trajectories(), skill).edits if e.op == "modify"]
    assert edit.anchor == "The possible answers are: green, red."
    assert edit.text == "The possible answers are: blue, green, red."


def test_nothing_is_proposed_where_nothing_failed() -> None:
    assert [e for e in propose(trajectories(hard=1.0)).edits if e.section != "Which answer"] == []


def test_forms() -> None:
    assert "number alone" in form_of(["12", "-3.5", "1,000"])
    assert "one word" in form_of(["Paris", "Rome"])
    assert "JSON" in form_of(['{"a": 1}', '[1, 2, "x y"]'])
    assert "phrase" in form_of(["Jane Austen", "the North Sea"])
    assert form_of(["a long answer of more than eight words in every way"]) == ""


class Follower:
    """A target that answers right only when the skill shows an example with the same first word."""

    name, endpoint, deterministic = "sim:follower", "sim", True

    async def chat(self, request: ChatRequest) -> ChatReply:
        system = "\n".join(str(m["content"]) for m in request.messages if m["role"] == "system")
        word = str(request.messages[-1]["content"]).split()[0]
        for block in system.split("Task: ")[1:]:
            task, _, reply = block.partition("\nReply: ")
            if task.split()[0] == word:
                return ChatReply(text=reply.split("\n")[0])
        return ChatReply(text="Let me think about that.")

    async def close(self) -> None:
        return


def test_a_run_with_the_exemplar_alone_needs_no_optimizer_and_learns(tmp_path: Path) -> None:
    import json

    words = ["apple", "brick", "cloud", "dance"]
    answers = {"apple": "north", "brick": "south", "cloud": "north", "dance": "south"}
    for split, size in (("train", 16), ("val", 8), ("test", 8)):
        rows = [
            {"id": f"{split}{n}", "question": f"{words[n % 4]} {split} {n}", "answers": [answers[words[n % 4]]]}
            for n in range(size)
        ]
        (tmp_path / split).mkdir()
        (tmp_path / split / "items.json").write_text(json.dumps(rows))
    config = Config.parse(
        {
            "train": {"num_epochs": 1, "batch_size": 8},
            "optimizer": {"use_meta_skill": False},
            "gradient": {"analysts": ["exemplar"]},
            "env": {"name": "qa", "split_dir": str(tmp_path), "output_root": str(tmp_path / "out")},
        }
    )
    result = asyncio.run(TrainingLoop(config, models={"target": Follower()}).fit())
    assert result.summary["initial"]["test"] == 0.0
    assert result.summary["best"]["test"] == 1.0
    assert result.summary["calls"]["optimizer"] == 0
    assert "Task: " in result.best_skill.text


def test_no_model_says_so_when_it_is_called() -> None:
    import pytest

    from skillopt.models.base import FatalError

    with pytest.raises(FatalError, match="no model for this role"):
        asyncio.run(NoModel().chat(ChatRequest(messages=())))


def test_the_quickstart_config_is_valid() -> None:
    for name in ("default", "llm"):
        Config.load(REPO / "configs" / "quickstart" / f"{name}.yaml")


def test_next_to_rules_no_examples_are_made_of_tasks_that_took_several_turns() -> None:
    rows = trajectories(types=False)
    talk = [{"role": role, "content": "…"} for role in ("system", "user", "assistant", "tool", "assistant")]
    unused: Caller = None  # type: ignore[assignment]

    def examples(given: list[Trajectory]) -> str:
        batch = Minibatch(id="m", kind="batch", trajectories=given)
        return texts(asyncio.run(ExemplarAnalyst().propose(Skill(""), batch, OptimizerContext(), unused, Config())))

    assert "Reply: red" in examples(rows)
    assert examples([row.model_copy(update={"messages": talk}) for row in rows]) == ""
