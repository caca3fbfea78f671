"""Edits in other words are recognised; opposites, and edits that differ in what matters, never merge."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from skillopt.edits.similarity import meaning, opposite_meaning, same_facts, same_meaning
from support import REPO

spec = importlib.util.spec_from_file_location("bench_similarity", REPO / "bench" / "similarity.py")
assert spec
assert spec.loader
bench = importlib.util.module_from_spec(spec)
sys.modules["bench_similarity"] = bench
spec.loader.exec_module(bench)
PAIRS = bench.read_pairs()


def test_the_labelled_set_is_large_enough() -> None:
    counts = {label: sum(pair.label == label for pair in PAIRS) for label in ("same", "related", "opposite")}
    assert sum(counts.values()) >= 150
    assert min(counts.values()) >= 50


@pytest.mark.parametrize("part", [PAIRS[: bench.LOOKED_AT], PAIRS[bench.LOOKED_AT :], PAIRS])
def test_the_measured_quality_holds(part: list[object]) -> None:
    precision, _, f1 = bench.scores(part, "same", same_meaning)
    assert precision == 1
    assert f1 >= 0.85
    precision, recall, _ = bench.scores(part, "opposite", opposite_meaning)
    assert precision >= 0.95
    assert recall >= 0.85


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.label != "same"], ids=lambda pair: str(pair.line))
def test_no_related_and_no_opposite_pair_is_merged(pair: object) -> None:
    assert not same_meaning(pair.a, pair.b)  # type: ignore[attr-defined]
    assert not same_meaning(pair.b, pair.a)  # type: ignore[attr-defined]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair.line))
def test_both_relations_are_symmetric_and_exclude_each_other(pair: object) -> None:
    a, b = pair.a, pair.b  # type: ignore[attr-defined]
    assert same_meaning(a, b) == same_meaning(b, a)
    assert opposite_meaning(a, b) == opposite_meaning(b, a)
    assert not (same_meaning(a, b) and opposite_meaning(a, b))
    assert not opposite_meaning(a, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Search the cabinets first.", "Search the first cabinet."),
        ("Count red items only once.", "Count only red items once."),
        ("Open the door and close the window.", "Close the door and open the window."),
        ("Open the box, then close the bag.", "Close the bag, then open the box."),
        ("Open the fridge, take the apple.", "Take the apple, open the fridge."),
        ("Grab the apple, open the fridge.", "Open the fridge, grab the apple."),
        ("Go to the sink to clean the cup.", "Clean the cup to go to the sink."),
        ("Stop to search the boxes.", "Search the boxes to stop."),
        ("Use quoted0 and `x.y`.", "Use `x.y` and quoted0."),
        ("The parent pays the child.", "The child pays the parent."),
        ("Take the cup on the desk.", "Put the cup on the desk."),
        ("Replace A with B.", "Replace B with A."),
        ("Use A, not B.", "Use B, not A."),
        ("Do not use A but B.", "Use A but do not use B."),
        ("Find the key in the box.", "Find the box in the key."),
        ("Copy names to titles.", "Copy titles to names."),
        ("For red apples, answer KX-42.", "For KX-42, answer red apples."),
        ("If A holds, use B.", "If B holds, use A."),
        ('Say "yes please".', 'Say "no please".'),
        ("Use `a.b` here.", "Use `a.c` here."),
        ("Answer in 2 words.", "Answer in 3 words."),
        ("Answer in two words.", "Answer in three words."),
    ],
)
def test_order_names_numbers_and_quotations_keep_instructions_apart(a: str, b: str) -> None:
    assert not same_meaning(a, b)
    assert not same_meaning(b, a)


def test_texts_without_content_say_nothing_in_common() -> None:
    assert meaning("Please answer.") == meaning("Reply.") == ()
    assert not same_meaning("Please answer.", "Reply.")
    assert not same_meaning("Never give it.", "Do not say it.")


def test_the_guard_of_the_models_own_merging() -> None:
    assert same_facts("Give the shipment's number.", "State which parcel it is about, by number.")
    assert not same_facts("For maple, answer KX-42.", "For cedar, answer KX-42.")
    assert not same_facts("Round to 2 places, as the table does.", "Use 3 decimals when rounding.")
    assert not same_facts("Ask Anna for the code first.", "The code comes from Bob.")
    assert not same_facts("Explain the answer briefly to people.", "Do not explain anything.")
