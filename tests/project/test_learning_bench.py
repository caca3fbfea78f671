"""The task sets of the learning bench: shape, splits, and answers that follow from the generator."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from types import ModuleType

import pytest

from support import REPO

LEARNING = REPO / "bench" / "learning"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"learning_{name}", LEARNING / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"learning_{name}"] = module
    spec.loader.exec_module(module)
    return module


make_tasks = load("make_tasks")
SETS = sorted(make_tasks.SETS)


def read_items(name: str, split: str) -> list[dict[str, str]]:
    lines = (LEARNING / "tasks" / name / split / "items.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", SETS)
def test_the_committed_items_are_those_that_the_generator_makes(name: str) -> None:
    for split, items in make_tasks.make(name).items():
        made = [{key: item[key] for key in ("id", "question", "answer")} for item in items]
        assert read_items(name, split) == made
        assert len(made) == make_tasks.SIZES[split]


@pytest.mark.parametrize("name", SETS)
def test_no_item_is_in_two_splits(name: str) -> None:
    items = [item for split in make_tasks.SIZES for item in read_items(name, split)]
    for key in ("id", "question"):
        assert len({item[key].lower() for item in items}) == len(items) == sum(make_tasks.SIZES.values())


@pytest.mark.parametrize("name", SETS)
def test_the_skill_by_hand_gives_away_no_val_or_test_item(name: str) -> None:
    text = (LEARNING / "tasks" / name / "by_hand.md").read_text(encoding="utf-8")
    assert not [item for split in ("val", "test") for item in read_items(name, split) if item["question"] in text]


@pytest.mark.parametrize("name", SETS)
def test_all_that_val_and_test_ask_for_can_be_learned_from_train(name: str) -> None:
    made = make_tasks.make(name)
    for key in make_tasks.RULES[name]:
        seen = {item["fields"][key] for item in made["train"]}
        assert seen >= {item["fields"][key] for split in ("val", "test") for item in made[split]}, key


def test_no_answer_has_a_character_that_a_pattern_would_read_differently() -> None:
    answers = [item["answer"] for split in make_tasks.SIZES for item in read_items("cards", split)]
    assert not [answer for answer in answers if re.search(r"[\\.^$*+?{}\[\]|()]", answer)]
