"""Scores are SQuAD's, computed by hand here; the answer is what the target meant as such."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.envs.base import Score
from skillopt.envs.scoring import SCORERS, exact, extract_answer, f1, normalise, token_f1


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles!", "beatles"),
        ("  a   tale of\ttwo\ncities ", "tale of two cities"),
        ("An apple a day", "apple day"),
        ("U.S.A.", "usa"),
        ("rock-n-roll", "rocknroll"),
        ("the", "the"),
        ("theatre", "theatre"),
        ("Anna, a cat & the dog", "anna cat dog"),
        ("$1,000.50", "100050"),
        ("It's", "its"),
        ("A.", "a"),
        ("The A", "the a"),
        (" + ", "+"),
        ("a-b", "ab"),
        ("ÉCOLE", "école"),
        ("", ""),
        (" \n", ""),
    ],
)
def test_the_normal_form_is_squads(text: str, normal: str) -> None:
    assert normalise(text) == normal


@given(st.text())
def test_the_normal_form_has_no_capitals_doubled_spaces_or_punctuation(text: str) -> None:
    normal = normalise(text)
    assert normal == " ".join(normal.split())
    assert not {c for c in normal if c in "!?.,;:'()[]{}-_"} or not any(c.isalnum() for c in text)
    assert bool(normal) == bool(text.strip())


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("Barack Obama", "Obama", 2 / 3),  # one word of two is right, all of the gold is there
        ("the president Barack Obama", "Barack Hussein Obama", 2 * 2 / (3 + 3)),
        ("red red blue", "red blue blue", 2 * 2 / (3 + 3)),  # common words count as often as both have them
        ("blue", "red", 0.0),
        ("Paris", "paris.", 1.0),
        ("cat the dog", "dog a cat", 1.0),  # order does not count
        ("A", "the", 0.0),  # an answer of nothing but an article is that article
        ("B", "A", 0.0),
        ("the", "cat", 0.0),
        ("", "cat", 0.0),
        ("a b c d e f g h i j", "j", 2 * 1 / (9 + 1)),  # `a` is an article
    ],
)
def test_token_f1_by_hand(answer: str, gold: str, value: float) -> None:
    assert token_f1(answer, gold) == pytest.approx(value)


@given(st.text(alphabet="ab cx"), st.text(alphabet="ab cx"))
def test_token_f1_is_symmetric_and_within_bounds(a: str, b: str) -> None:
    assert 0 <= token_f1(a, b) <= 1
    assert token_f1(a, b) == token_f1(b, a)
    assert token_f1(a, a) == 1


def test_exact_takes_the_best_of_several_answers() -> None:
    assert exact("The Nile.", ["Amazon", "nile"]) == Score(hard=1, soft=1)
    close = exact("White Nile", ["Amazon", "Nile river"])
    assert (close.hard, close.soft) == (0, 0.5)
    assert close.feedback == 'expected "Amazon" or "Nile river"'


@pytest.mark.parametrize("gold", ["A", "a", "The", "+", "..."])
def test_silence_and_other_words_never_match_an_answer_of_one_article_or_sign(gold: str) -> None:
    for output in ("", "an", "?", "<answer></answer>", "the the"):
        assert exact(output, [gold]).hard == 0
    assert exact(f"<answer>{gold}</answer>", [gold]).hard == 1


def test_exact_wants_the_whole_answer_in_order() -> None:
    assert exact("a cat and a dog", ["dog and cat"]) == Score(hard=0, soft=1, feedback='expected "dog and cat"')
    assert exact("it is Nile", ["Nile"]).hard == 0


def test_f1_is_solved_from_one_half_on() -> None:
    assert (f1("Barack Obama", ["Obama"]).hard, f1("Mr Barack H. Obama", ["Obama"]).hard) == (1, 0)
    assert f1("x y z", ["Obama"]) == Score(hard=0, soft=0, feedback='expected "Obama"')


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("Nile", "Nile"),
        (" Nile \n", "Nile"),
        ("I think.\n<answer> Nile </answer> So it is.", "Nile"),
        ("<ANSWER>Nile</Answer>", "Nile"),
        ("<answer>Amazon</answer> no, <answer>Nile</answer>", "Nile"),
        ("<answer>two\nlines</answer>", "two\nlines"),
        ("I put it into <answer> tags: <answer>Nile</answer>", "Nile"),
        ("<answer>Nile</answer> and then <answer>", "Nile"),
        ("<answer></answer>", ""),
        ("<answer>Nile", "<answer>Nile"),
        ("</answer>Nile<answer>", "</answer>Nile<answer>"),
        ("", ""),
    ],
)
def test_the_answer_is_the_last_tagged_one_or_the_whole_output(output: str, answer: str) -> None:
    assert extract_answer(output) == answer


@pytest.mark.parametrize(
    "output", ["<answer>" * 100_000, "</answer>" * 100_000, "x" * 1_000_000, "\ud800 <answer>\x00</answer>"]
)
@pytest.mark.parametrize("scorer", sorted(SCORERS))
def test_no_output_makes_a_scorer_fail_or_hang(scorer: str, output: str) -> None:
    started = time.monotonic()
    score = SCORERS[scorer](output, ["Nile"])
    assert (score.hard, score.soft) == (0, 0)
    assert time.monotonic() - started < 5


def test_mixed_is_the_mean_of_hard_and_soft() -> None:
    score = Score(hard=0, soft=0.5)
    assert [score.value(metric) for metric in ("hard", "soft", "mixed")] == [0, 0.5, 0.25]
