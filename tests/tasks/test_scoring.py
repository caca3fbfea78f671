"""Scores are computed by hand here; the answer is what the target meant as such."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.tasks.base import Item, Score
from skillopt.tasks.numbers import quantities
from skillopt.tasks.scorers import NamedScorer
from skillopt.tasks.scoring import (
    SCORERS,
    anls,
    choice,
    contains,
    edit_distance,
    exact,
    extract_answer,
    f1,
    json_fields,
    normalise,
    number,
    regex,
    token_f1,
)
from support import ends_within


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
    score = SCORERS[scorer](output, ["Nile"])
    assert (score.hard, score.soft) == (0, 0)


@pytest.mark.parametrize("output", ["≈" * 300_000 + "a", "x ≈ " * 100_000 + "a", "x = " + "!" * 300_000 + "a"])
@pytest.mark.parametrize("scorer", sorted(SCORERS))
def test_no_output_occupies_a_scorer(scorer: str, output: str) -> None:
    with ends_within(120):
        SCORERS[scorer](output, ["1"])


def test_mixed_is_the_mean_of_hard_and_soft() -> None:
    score = Score(hard=0, soft=0.5)
    assert [score.value(metric) for metric in ("hard", "soft", "mixed")] == [0, 0.5, 0.25]


# Contains and choice


def test_contains_wants_whole_words_and_with_every_all_of_them() -> None:
    assert contains("It was Jane Austen, I think.", ["Austen"]).hard == 1
    assert contains("It was Austenite.", ["Austen"]).hard == 0
    both = contains("red and green", ["red", "blue"], every=True)
    assert (both.hard, both.soft, both.feedback) == (0, 0.5, 'the reply does not contain "blue"')


@pytest.mark.parametrize(
    "output", ["B", "(B)", "b.", "B) 42", "The answer is B.", "Not A; the answer is (B).", "**B**"]
)
def test_a_letter_is_found_however_it_is_given(output: str) -> None:
    assert choice(output, ["B"]).hard == 1
    assert choice(output, ["C"]).hard == 0


DIGITS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("choices", [(), DIGITS, {"1": "red", "2": "blue", "3": "green"}, [*DIGITS, "10"]])
def test_a_choice_of_one_digit_is_read_as_a_letter_is(choices: Any) -> None:
    for right in ("3", "3.", "(3)", "The answer is 3.", "**Answer:** 3", "I choose option 3 because it fits."):
        assert choice(right, ["3"], choices=choices).hard == 1, right
    for wrong in ("The answer is 4.", "The answer is 3.5.", "3.5", "The answer is 30.", "2", "no idea"):
        assert choice(wrong, ["3"], choices=choices).hard == 0, wrong


def test_digits_that_are_all_answers_are_the_choices() -> None:
    scorer = NamedScorer("choice", {})
    items = [Item(id=str(n), question=f"Stars of {n}?", answers=(str(n % 3 + 1),)) for n in range(12)]
    scorer.check({"train": items, "val": items[:3], "test": items[3:6]})
    three = next(item for item in items if item.answer == "3")
    said = ("3 stars", "between 2 and 3", "The answer is 3, not 2.")
    assert [scorer(three, text).hard for text in said] == [1, 0, 1]  # type: ignore[union-attr]


def test_a_choice_by_its_text_counts_as_its_letter_and_two_choices_count_as_none() -> None:
    texts = ["red", "blue", "light blue"]
    assert choice("It is blue.", ["B"], choices=texts).hard == 1
    assert choice("It is light blue.", ["B"], choices=texts).hard == 0
    assert choice("light blue", ["C"], choices=texts).hard == 1
    assert choice("red or blue", ["B"], choices=texts).feedback.startswith("the reply names several choices")
    assert choice("no idea", ["B"], choices={"A": "yes", "B": "no way"}).hard == 0
    assert choice("no way", ["B"], choices={"A": "yes", "B": "no way"}).hard == 1
    assert choice("Queue: blue", ["blue"], choices=["red", "blue"]).hard == 1


# Numbers


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1,234.5 km", 1234.5, "km"),
        ("1.234,56 €", 1234.56, "€"),
        ("1 234 567", 1234567, ""),
        ("$1,234", 1234, "$"),
        ("1,5", 1.5, ""),
        ("−7 °C", -7, "°c"),
        ("6.02 x 10^23", 6.02e23, ""),
        ("2.5 million", 2.5e6, ""),
        ("3/4", 0.75, ""),
        (".5", 0.5, ""),
        ("so 3 + 4 = 7.", 7, ""),
        ("10 - 4 is 6", 6, ""),
        ("30k", 30000, ""),
        ("40 Kilometres", 40, "km"),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, value: float, unit: str) -> None:
    last = quantities(text)[-1]
    assert last.value == pytest.approx(value)
    assert last.unit == unit


def test_a_version_or_a_name_is_no_number() -> None:
    assert quantities("version 1.2.3 of A1") == []


@pytest.mark.parametrize(
    ("output", "gold", "options", "hard"),
    [
        ("2000 m", "2 km", {}, 1),
        ("2 kg", "2 km", {}, 0),
        ("2", "2 km", {}, 1),
        ("2", "2 km", {"units": "required"}, 0),
        ("2 kg", "2 km", {"units": "ignore"}, 1),
        ("about 2,000 people", "2000", {}, 1),
        ("3.14", "3.14159", {"tolerance": 0.01}, 1),
        ("3.2", "3.14159", {"tolerance": 0.01}, 0),
        ("102", "100", {"relative_tolerance": 0.02}, 1),
        ("1.234", "1234", {"decimal": ","}, 1),
        ("first 5, so #### 8", "8", {}, 1),
        (r"it is \boxed{8} of 9", "8", {}, 1),
        ("50%", "0.5", {}, 0),
        ("n/a", "n/a", {}, 1),
    ],
)
def test_a_number_counts_by_value_unit_and_tolerance(output: str, gold: str, options: Any, hard: int) -> None:
    assert number(output, [gold], **options).hard == hard


@pytest.mark.parametrize(
    "cut",
    [
        "18096 / 1.36 =",
        "So it is 18096 / 1.36 = $",
        "<answer>18096 / 1.36 =</answer>",
        "18096 / 1.36 ≈\n",
        "13305.88 = ",
    ],
)
def test_a_calculation_without_its_result_is_no_answer(cut: str) -> None:
    score = number(cut, ["13305.88"], tolerance=0.01)
    assert (score.hard, "ends before the result" in score.feedback) == (0, True)
    assert number(f"{cut.partition('</')[0]} 13305.88", ["13305.88"]).hard == 1
    assert number("18096 / 1.36", ["13305.88"], tolerance=0.01).hard == 1, "a fraction is a number"


@pytest.mark.parametrize(
    ("output", "says"),
    [("none", "no number"), ("5000", "factor of 1000"), ("-5", "wrong sign"), ("6", "the number is wrong")],
)
def test_feedback_on_a_number_says_how_it_is_wrong(output: str, says: str) -> None:
    assert says in number(output, ["5"]).feedback


# ANLS


@given(st.text(alphabet="abc", max_size=8), st.text(alphabet="abc", max_size=8))
def test_the_edit_distance_is_levenshteins(a: str, b: str) -> None:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[:], i
        for j, y in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
    assert edit_distance(a, b) == row[-1]


def test_anls_by_hand() -> None:
    assert anls("Invoice 12", ["invoice 12"]) == Score(hard=1, soft=1)
    near = anls("invoice 13", ["total", "Invoice 12"])
    assert (near.hard, near.soft) == (0, pytest.approx(0.9))
    assert anls("abcd", ["abxy"]).soft == 0  # a distance of one half is too far
    assert anls("abcde", ["abxye"]).soft == pytest.approx(0.6)


# Patterns and JSON


def test_a_pattern_must_match_the_whole_answer_unless_it_is_searched() -> None:
    assert regex("AB-12", [r"[a-z]{2}-\d+"]).hard == 1
    assert regex("it is AB-12", [r"[a-z]{2}-\d+"]).hard == 0
    assert regex("it is AB-12", [r"[a-z]{2}-\d+"], search=True).hard == 1
    assert regex("AB-12", [r"[a-z]{2}-\d+"], ignore_case=False).hard == 0


def test_json_counts_field_by_field() -> None:
    gold = '{"total": 12.5, "who": {"name": "Ann Lee"}, "tags": ["a", "b"]}'
    right = 'Here it is:\n```json\n{"who": {"name": "ann  lee", "age": 3}, "total": 12.50, "tags": ["A", "b"]}\n```'
    assert json_fields(right, [gold]) == Score(hard=1, soft=1)
    some = json_fields('{"total": 13, "tags": ["a", "b"]}', [gold])
    assert (some.hard, some.soft) == (0, pytest.approx(1 / 3))
    assert some.feedback == "field 'total' is 13, expected 12.5; field 'who.name' is missing"
    assert json_fields('{"total": 13}', [gold], fields=["total"], tolerance=1).hard == 1
    assert "no usable JSON" in json_fields("none", [gold]).feedback
    assert json_fields("12.5", [gold]).hard == 0
    assert json_fields('{"a": true}', ['{"a": 1}']).hard == 0
