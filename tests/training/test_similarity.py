"""What the words alone show: near-identical texts, plain contradictions, and the facts of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.training.edits.similarity import content_words, facts, normal_name, opposite_text, other_value, same_text

TEXTS = st.text(alphabet="abc not 12 -.,;!\n`'’\"()#*", max_size=40)


@given(TEXTS, TEXTS)
def test_all_relations_are_symmetric_and_exclude_each_other(a: str, b: str) -> None:
    relations = (same_text, opposite_text, other_value)
    for relation in relations:
        assert relation(a, b) == relation(b, a)
    assert sum(relation(a, b) for relation in relations) <= 1
    assert same_text(a, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Search the cabinets first.", "Search the first cabinet."),
        ("Count red items only once.", "Count only red items once."),
        ("Open the door and close the window.", "Close the door and open the window."),
        ("Open the box, then close the bag.", "Close the bag, then open the box."),
        ("Go to the sink to clean the cup.", "Clean the cup to go to the sink."),
        ("Use quoted0 and `x.y`.", "Use `x.y` and quoted0."),
        ("The parent pays the child.", "The child pays the parent."),
        ("Take the cup on the desk.", "Put the cup on the desk."),
        ("Replace A with B.", "Replace B with A."),
        ("Use A, not B.", "Use B, not A."),
        ("Do not use A but B.", "Use A but do not use B."),
        ("For red apples, answer KX-42.", "For KX-42, answer red apples."),
        ("If A holds, use B.", "If B holds, use A."),
        ('Say "yes please".', 'Say "no please".'),
        ("Use `a.b` here.", "Use `a.c` here."),
        ("Answer in 2 words.", "Answer in 3 words."),
        ("Answer in two words.", "Answer in three words."),
        ("List the items.", "Sort the items."),
        ("Reply with just the label.", "Answer with the label only."),
    ],
)
def test_order_names_numbers_quotations_and_other_words_keep_instructions_apart(a: str, b: str) -> None:
    assert not same_text(a, b)


@pytest.mark.parametrize(
    "b", ["- answer with the LABEL only", "**Please** answer with the label, only!", "Then also answer with label only"]
)
def test_case_marks_and_fillers_do_not(b: str) -> None:
    assert same_text("Answer with the label only.", b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Give the date.", "Never give the date."),
        ("Give the date.", "Do not give the date."),
        ("You should give the date.", "You shouldn't give the date."),
    ],
)
def test_a_negation_makes_opposites(a: str, b: str) -> None:
    assert opposite_text(a, b)


def test_nothing_with_and_without_a_negation_is_no_opposite() -> None:
    assert not opposite_text("Never.", "Always.")
    assert not opposite_text("", "Not")
    assert not opposite_text("Do not never give it.", "Give it.")


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ("Round to 2 places.", "round to 3 places", True),
        ("For maple, answer KX-42.", "For maple, answer KX-43.", True),
        ("For maple, answer KX-42.", "For cedar, answer KX-42.", False),
        ("Wait 5 to 10 minutes.", "Wait 6 to 12 minutes.", False),
        ("Round to 2 places.", "Round to 2 places.", False),
        ("Round to 2.", "Round to two.", False),
    ],
)
def test_one_other_value_in_the_same_words(a: str, b: str, found: bool) -> None:
    assert other_value(a, b) is found


def test_facts_are_quotations_numbers_and_names() -> None:
    text = 'Ask Anna for form B12. Then say "yes please" or `x.y`; It costs $5 in Lyon.\nTake care.'
    assert facts(text) == {"Anna", "B12", "yes please", "x.y", "5", "Lyon"}
    assert facts("Answer with the label. Be brief: Name it.") == set()


def test_names_of_causes_are_equal_where_only_case_and_punctuation_differ() -> None:
    assert normal_name("No-label!") == normal_name("no label") == "no label"
    assert normal_name("no label") != normal_name("no labels")
    assert normal_name("…") == ""


def test_code_stays_as_it_is() -> None:
    assert content_words("Call `Get.it` first.") == ("call", "`Get.it`", "first")
