"""reasoning-gym: frozen items, strict hard scores, and nothing that a model wrote is ever evaluated."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="pip install 'skillopt[reasoning_gym]'")

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.tasks import open_env
from skillopt.tasks.base import Item, check_splits, score_output
from skillopt_benchmarks.reasoning_gym import generate, is_plain, score_answer
from support import REPO

pytestmark = pytest.mark.extras

SIZES = {"train": 3, "val": 2, "test": 3}


def test_a_scripted_policy_earns_full_marks_and_nothing_earns_none() -> None:
    env = open_env(Config.load(REPO / "configs" / "reasoning_gym" / "mini.yaml"))
    check_splits(env)
    for item in env.items("test"):
        assert asyncio.run(score_output(env, item, f"<answer>{item.answers[0]}</answer>")).hard == 1
        nothing = asyncio.run(score_output(env, item, ""))
        assert (nothing.hard, nothing.feedback) == (0, f'expected "{item.answers[0]}"')


def test_an_answer_that_only_contains_the_right_one_is_not_right() -> None:
    entry = {"question": "4 - 1 - 7 =", "answer": "-4", "metadata": {}}
    assert score_answer("chain_sum", entry, "-4").hard == 1
    chatty = score_answer("chain_sum", entry, "I think that it is -4 and nothing else")
    assert chatty.hard == 0
    assert chatty.soft < 0.99


def test_the_same_seed_makes_the_same_items_and_every_answer_survives_being_written_down() -> None:
    families = ("gcd", "word_sorting", "countdown")
    made = generate(families, 3, SIZES)
    assert made == generate(families, 3, SIZES)
    assert [Item.model_validate_json(item.model_dump_json()) for item in made["train"]] == made["train"]
    assert [len(rows) for rows in made.values()] == [3, 2, 3]
    assert {row["family"] for row in made["train"]} == {"gcd", "word_sorting", "countdown"}
    questions = [row["question"] for rows in made.values() for row in rows]
    assert len(set(questions)) == len(questions)
    assert generate(families, 4, SIZES) != made
    for row in made["train"]:
        assert score_answer(row["family"], row["entry"], row["answers"][0]).hard == 1


def test_a_family_without_a_single_answer_is_scored_by_its_checker() -> None:
    (row, *_) = generate(("palindrome_generation",), 1, SIZES)["train"]
    letters = str(row["entry"]["metadata"]["letters"])
    assert isinstance(letters, str)
    assert score_answer("palindrome_generation", row["entry"], "zzz").hard == 0


def test_an_unknown_family_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown 'chainsum'; reasoning-gym has: .*chain_sum"):
        generate(("chainsum",), 0, SIZES)


def test_what_a_model_wrote_is_never_evaluated(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    attack = f"__import__('pathlib').Path({str(mark)!r}).touch() or 24"
    metadata = {"numbers": [1, 2, 3, 4], "matrix": [[1]], "variable": "x", "integrand": "1", "n": 4}
    for family in ("puzzle24", "countdown", "string_insertion", "spiral_matrix", "binary_matrix", "n_queens",
                   "simple_integration", "polynomial_multiplication"):  # fmt: skip
        entry = {"question": "?", "answer": "24", "metadata": metadata}
        for text in (attack, f"[{attack}]", "9**9**9**9", "exec(chr(1))", "().__class__"):
            assert score_answer(family, entry, text).hard == 0
    assert not mark.exists()


def test_a_scorer_that_raises_is_a_wrong_answer() -> None:
    score = score_answer("spiral_matrix", {"question": "?", "answer": "1 2"}, "[1, [")
    assert (score.hard, score.soft) == (0, 0)


@pytest.mark.parametrize("text", ["1 + 2*3", "(8 - 2) * 4", "x**2/2 + sin(x) + C", "[1, 2, [3]]", "-3.5"])
def test_arithmetic_and_data_are_plain(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize(
    "text", ["2**9**9", "2**100000", "open(x)", "a.b", "lambda: 1", "__a", "x[0]", "'s' * 10**9", "("]
)
def test_code_is_not(text: str) -> None:
    assert not is_plain(text)
