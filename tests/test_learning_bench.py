"""The task sets of the learning bench: shape, splits, and answers that follow from the generator."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPO = Path(__file__).parents[1]
LEARNING = REPO / "bench" / "learning"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"learning_{name}", LEARNING / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"learning_{name}"] = module
    spec.loader.exec_module(module)
    return module


make_tasks, run, scoring = load("make_tasks"), load("run"), load("scoring")
SETS = sorted(make_tasks.SETS)


@pytest.mark.parametrize("name", SETS)
def test_the_committed_items_are_those_that_the_generator_makes(name: str) -> None:
    for split, items in make_tasks.make(name).items():
        made = [{key: item[key] for key in ("id", "question", "answer")} for item in items]
        assert run.read_items(name, split) == made
        assert len(made) == make_tasks.SIZES[split]


@pytest.mark.parametrize("name", SETS)
def test_no_item_is_in_two_splits(name: str) -> None:
    items = [item for split in make_tasks.SIZES for item in run.read_items(name, split)]
    for key in ("id", "question"):
        assert len({item[key].lower() for item in items}) == len(items) == sum(make_tasks.SIZES.values())


@pytest.mark.parametrize("name", SETS)
def test_the_skill_by_hand_gives_away_no_val_or_test_item(name: str) -> None:
    text = (LEARNING / "tasks" / name / "by_hand.md").read_text(encoding="utf-8")
    assert not [item for split in ("val", "test") for item in run.read_items(name, split) if item["question"] in text]


@pytest.mark.parametrize("name", SETS)
def test_a_right_answer_scores_and_another_items_answer_does_not(name: str) -> None:
    feedback = scoring.SCORERS[run.task_config(name)["env"]["scoring"]]
    items = run.read_items(name, "train")
    for item, other in itertools.pairwise(items):
        assert feedback(item["answer"], item["answer"]) == ""
        if item["answer"] != other["answer"]:
            assert item["answer"] in feedback(other["answer"], item["answer"])


@pytest.mark.parametrize("name", SETS)
def test_all_that_val_and_test_ask_for_can_be_learned_from_train(name: str) -> None:
    made = make_tasks.make(name)
    for key in make_tasks.RULES[name]:
        seen = {item["fields"][key] for item in made["train"]}
        assert seen >= {item["fields"][key] for split in ("val", "test") for item in made[split]}, key


def test_no_answer_has_a_character_that_a_pattern_would_read_differently() -> None:
    answers = [item["answer"] for split in make_tasks.SIZES for item in run.read_items("cards", split)]
    assert not [answer for answer in answers if re.search(r"[\\.^$*+?{}\[\]|()]", answer)]


def test_the_last_number_of_a_reply_is_its_answer() -> None:
    assert scoring.number("7 x 6 = 42\n42 + 7 = 49\nFee: 1,049", "1049") == ""
    assert scoring.number("The fee is 49. <answer>1049</answer>", "1049") == ""
    assert "no number" in scoring.number("I cannot say.", "1049")


def test_the_table_counts_the_test_items_of_all_seeds_together() -> None:
    cell = {"set": "cards", "method": "ours", "val": [0.5, None], "val_best": 0.5, "minutes": 3.0}
    cell |= {
        "rollouts": 200,
        "requests": 7,
        "test": {"initial": {"a": False, "b": False}, "best": {"a": True, "b": False}},
    }
    text = run.table([cell | {"seed": seed} for seed in (1, 2)])
    assert "| cards | ours | 1 | 0.50, – | 0.50 | 0.00 [0.00–0.66] | 0.50 [0.09–0.91] | 200 | 7 | 3.0 |" in text
    assert "| cards | ours | 2 | 0.50 | 0.50 [0.15–0.85] | 7.0 | 200 |" in text
    assert run.wilson(0, 40)[0] == 0.0
