"""Edits that say the same become one; edits that do not are never taken for the same, however alike they look."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skillopt.analysts.base import Patch
from skillopt.edits.aggregate import aggregate, opposite, same_edit
from skillopt.skill import Edit


def edit(text: str, number: int = 1, *, op: str = "add", cited: tuple[str, ...] = ("t1",), **fields: object) -> Edit:
    row = {"id": f"e{number:02d}", "op": op, "text": text, "trajectory_ids": cited, **fields}
    return Edit.model_validate(row)


def patches(*edits: Edit) -> list[Patch]:
    return [Patch(id=f"p-{e.id}", source="llm/failure", trajectory_ids=e.trajectory_ids, edits=(e,)) for e in edits]


def same(a: str, b: str) -> bool:
    return same_edit(edit(a), edit(b, 2))


NEAR_COPIES = [
    "Give the date as 2024-01-31.",
    "- give the date as 2024-01-31",
    "**Give** the date, as 2024-01-31!",
    "Please give the date as  2024-01-31.",
    "Give a date as “2024-01-31”.",
]


def test_near_copies_become_one_edit_with_their_support_added_up() -> None:
    edits = [edit(text, n, cited=(f"t{n}", "t0"), impact=n / 10) for n, text in enumerate(NEAR_COPIES, 1)]
    pool = aggregate(patches(*edits))
    (pooled,) = pool.edits
    assert pooled.edit.text == NEAR_COPIES[0]
    assert pooled.edit.trajectory_ids == ("t0", "t1", "t2", "t3", "t4", "t5")
    assert pooled.support == 6
    assert pooled.edit.impact == 0.5
    assert pooled.merged == ("e01", "e02", "e03", "e04", "e05")
    assert (pool.proposed, pool.merged, pool.conflicts) == (5, 4, ())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Give 12 digits.", "Give 21 digits."),
        ("Give 12 digits.", "Give 1 2 digits."),
        ("Round to 1.5.", "Round to 15."),
        ("Round to 1,5.", "Round to 1 5."),
        ("Start at -5.", "Start at 5."),
        ("Start at \u22125.", "Start at 5."),
        ("Weigh it with .5.", "Weigh it with 5."),
        ("Keep 5% of it.", "Keep 5 of it."),
        ("Pay $5.", "Pay \u20ac5."),
        ("Take it if x < 3.", "Take it if x > 3."),
        ("Take it if x >= 3.", "Take it if x <= 3."),
        ("Take it if x != 3.", "Take it if x = 3."),
        ("Wait 5\u201310 seconds.", "Wait 5 10 seconds."),
        ("Answer with maple.", "Answer with cedar."),
        ("Answer with Maple.", "Answer with Cedar."),
        ("Write it in C.", "Write it in C++."),
        ("Write it in C++.", "Write it in C#."),
        ("Call get_item first.", "Call get item first."),
        ("Call `a[0]` first.", "Call `a(0)` first."),
        ("Call `Get.it` first.", "Call `get.it` first."),
        ("Open ./a/b.", "Open ./a b."),
        ("Give the date.", "Do not give the date."),
        ("Give the date.", "Don\u2019t give the date."),
        ("Give the date.", "Never give the date."),
        ("You can guess.", "You cannot guess."),
        ("Answer before you look.", "You look before answer."),
        ("Maple before cedar.", "Cedar before maple."),
        ("Give the date.", "Give the date and the time."),
        ("Mark it with \u2713.", "Mark it with \u2717."),
    ],
)
def test_a_number_a_name_a_sign_a_negation_or_the_order_keeps_edits_apart(a: str, b: str) -> None:
    assert not same(a, b)
    assert not same(b, a)
    pool = aggregate(patches(edit(a, 1), edit(b, 2)))
    assert not pool.merged
    assert len(pool.edits) + 2 * len(pool.conflicts) == 2


WORDS = ["multiply", "the", "a", "code", "date", "for", "maple", "cedar", "topic", "7", "12", "-3", "not"]
WORDS += ["x1", "Paris", "utc", "kg", "to", "in"]
"""No two of these say the same; tests/test_similarity.py has the words that do."""
HARMLESS = {"the", "a"}
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8)


@given(sentences, st.data())
def test_no_substituted_word_is_ever_merged(words: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(words) - 1))
    other = data.draw(st.sampled_from(WORDS))
    changed = [*words[:at], other, *words[at + 1 :]]
    assume([w for w in words if w not in HARMLESS] != [w for w in changed if w not in HARMLESS])
    assert not same(" ".join(words), " ".join(changed))


@given(sentences, st.randoms(use_true_random=False))
def test_no_other_order_of_words_is_ever_merged(words: list[str], chance: random.Random) -> None:
    shuffled = words.copy()
    chance.shuffle(shuffled)
    assume([w for w in words if w not in HARMLESS] != [w for w in shuffled if w not in HARMLESS])
    assert not same(" ".join(words), " ".join(shuffled))


@given(sentences, st.data())
def test_a_dropped_or_added_word_that_means_something_is_never_merged(words: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(words) - 1))
    assume(words[at] not in HARMLESS)
    assert not same(" ".join(words), " ".join([*words[:at], *words[at + 1 :]]))


@given(sentences, st.sampled_from(["{}.", "- {}", "**{}**", "{}!", "  {}  ", "Please {}", "the {}", "({})"]))
def test_case_punctuation_and_filler_words_do_not_keep_copies_apart(words: list[str], form: str) -> None:
    text = " ".join(words)
    assert same(text, form.format(text.upper()))


def test_edits_of_other_text_or_another_kind_are_never_the_same() -> None:
    assert not same_edit(edit("x", op="modify", anchor="a"), edit("x", 2, op="modify", anchor="b"))
    assert not same_edit(edit("x", op="modify", anchor="a"), edit("x", 2, op="delete", anchor="a"))
    assert same_edit(edit("x", op="modify", anchor="a"), edit("X.", 2, op="modify", anchor="a"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Give the date.", "Do not give the date."),
        ("Give the date.", "Don\u2019t give the date."),
        ("Always give the date.", "Never give the date!"),
        ("You must guess.", "You must not guess."),
        ("You should guess.", "You shouldn't guess."),
        ("Answer with no units.", "Answer with units."),
    ],
)
def test_opposites_are_flagged_and_neither_is_kept(a: str, b: str) -> None:
    other = edit("Something else.", 3)
    pool = aggregate(patches(edit(a, 1), edit(b, 2), other))
    assert [pooled.edit.id for pooled in pool.edits] == ["e03"]
    (conflict,) = pool.conflicts
    assert {conflict.a.id, conflict.b.id} == {"e01", "e02"}
    assert conflict.reason
    assert opposite(edit(b), edit(a, 2))


def test_copies_of_both_sides_of_a_conflict_go_with_them() -> None:
    both = [edit("Give it.", 1), edit("give it", 2), edit("Never give it.", 3), edit("Do not give it", 4)]
    pool = aggregate(patches(*both))
    assert not pool.edits
    assert pool.proposed == 4


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Do not give 12.", "Give 21."),
        ("Never answer maple.", "Answer cedar."),
        ("Do not never give it.", "Give it."),
        ("Not", "Never"),
    ],
)
def test_edits_about_different_things_are_no_opposites(a: str, b: str) -> None:
    assert not opposite(edit(a), edit(b, 2))


edit_texts = st.sampled_from(
    [
        *NEAR_COPIES,
        "Do not give the date as 2024-01-31.",
        "Answer maple.",
        "Answer cedar.",
        "answer Maple",
        "Never answer maple",
        "",
    ]
)


@given(st.lists(edit_texts, max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_patches_does_not_matter(texts: list[str], chance: random.Random) -> None:
    found = patches(*(edit(text, n, cited=(f"t{n % 3}",), impact=n / 10) for n, text in enumerate(texts)))
    shuffled = found.copy()
    chance.shuffle(shuffled)
    assert aggregate(shuffled) == aggregate(found)


@given(st.lists(edit_texts, max_size=10))
def test_no_edit_is_lost_on_the_way(texts: list[str]) -> None:
    pool = aggregate(patches(*(edit(text, n) for n, text in enumerate(texts))))
    kept = [name for pooled in pool.edits for name in pooled.merged]
    clashing = {e.id for conflict in pool.conflicts for e in (conflict.a, conflict.b)}
    assert len(kept) == len(set(kept))
    assert not clashing & set(kept)
    assert pool.proposed == len(texts)
    assert pool.edits or pool.conflicts or not texts


def test_nothing_gives_an_empty_pool() -> None:
    assert aggregate([]).model_dump() == {"edits": (), "conflicts": (), "proposed": 0}
