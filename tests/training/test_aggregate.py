"""Edits that say the same become one; edits that do not are never taken for the same, however alike they look.

Locally only near-copies merge; by meaning, the optimizer does (edits/aggregate.py). What it returns is checked.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skillopt.models.base import ChatReply, ChatRequest, TransientError
from skillopt.record.edits import EditPool, Patch
from skillopt.sim.model import SimulatedModel
from skillopt.sim.optimizer import rules_in
from skillopt.skill import Edit, Skill
from skillopt.training.edits.aggregate import aggregate, contradiction, same_edit
from skillopt.training.requests.context import EditLimits, OptimizerContext, TaskInfo
from support import Scripted, Spy, aggregate_locally, context


def edit(text: str, number: int = 1, *, op: str = "add", cited: tuple[str, ...] = ("t1",), **fields: object) -> Edit:
    row = {"id": f"e{number:02d}", "op": op, "text": text, "trajectory_ids": cited, **fields}
    return Edit.model_validate(row)


def patches(*edits: Edit) -> list[Patch]:
    return [Patch(id=f"p-{e.id}", source="llm/mixed", trajectory_ids=e.trajectory_ids, edits=(e,)) for e in edits]


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
    edits = [edit(text, n, cited=(f"t{n}", "t0")) for n, text in enumerate(NEAR_COPIES, 1)]
    pool = aggregate_locally(patches(*edits))
    (pooled,) = pool.edits
    assert pooled.edit.text == NEAR_COPIES[0]
    assert pooled.edit.trajectory_ids == ("t0", "t1", "t2", "t3", "t4", "t5")
    assert pooled.support == 6
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
    pool = aggregate_locally(patches(edit(a, 1), edit(b, 2)))
    assert not pool.merged
    assert len(pool.edits) + 2 * len(pool.conflicts) == 2


WORDS = ["multiply", "the", "a", "code", "date", "for", "maple", "cedar", "topic", "7", "12", "-3", "not"]
WORDS += ["x1", "Paris", "utc", "kg", "to", "in"]
"""No two of these say the same; tests/training/test_similarity.py has the words that do."""
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
    pool = aggregate_locally(patches(edit(a, 1), edit(b, 2), other))
    assert [pooled.edit.id for pooled in pool.edits] == ["e03"]
    (conflict,) = pool.conflicts
    assert {conflict.a.id, conflict.b.id} == {"e01", "e02"}
    assert conflict.reason
    assert (conflict.applied, conflict.held_back) == ("", 2)
    assert contradiction(edit(b), edit(a, 2)) == conflict.reason


def test_copies_of_both_sides_of_a_conflict_go_with_them() -> None:
    both = [edit("Give it.", 1), edit("give it", 2), edit("Never give it.", 3), edit("Do not give it", 4)]
    pool = aggregate_locally(patches(*both))
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
def test_edits_about_different_things_do_not_contradict_each_other(a: str, b: str) -> None:
    assert contradiction(edit(a), edit(b, 2)) == ""


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ({"text": "Round to 2 places."}, {"text": "Round to 3 places."}, "different values"),
        ({"text": "Ask for form B12."}, {"text": "ask for form B13"}, "different values"),
        ({"op": "delete", "anchor": "x"}, {"op": "modify", "anchor": "x", "text": "y"}, "one deletes the text"),
        ({"text": "Round to 2 places."}, {"text": "Round to 3 decimal places."}, ""),
        ({"text": "Answer maple."}, {"text": "Answer cedar."}, ""),
        ({"op": "delete", "anchor": "x"}, {"op": "modify", "anchor": "z", "text": "y"}, ""),
        ({"op": "modify", "anchor": "x", "text": "Take 1."}, {"text": "Take 2."}, ""),
    ],
)
def test_another_value_and_a_deletion_of_what_is_changed_are_conflicts(
    a: dict[str, str], b: dict[str, str], reason: str
) -> None:
    one, other = edit(**{"text": "", **a}), edit(**{"text": "", "number": 2, **b})  # type: ignore[arg-type]
    for found in (contradiction(one, other), contradiction(other, one)):
        assert found.startswith(f"they give {reason}" if "values" in reason else reason)
        assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("supports", "applied"), [((3, 1), "a"), ((1, 3), "b"), ((20, 1), "a"), ((2, 1), ""), ((5, 2), "")]
)
def test_a_side_with_three_times_the_support_is_tried_and_the_question_stays(
    supports: tuple[int, int], applied: str
) -> None:
    sides = [
        edit(text, number, cited=tuple(f"t{number}{n}" for n in range(support)))
        for number, (text, support) in enumerate(zip(("Give it.", "Never give it."), supports, strict=True), 1)
    ]
    pool = aggregate_locally(patches(*sides))
    (conflict,) = pool.conflicts
    assert conflict.applied == applied
    assert conflict.held_back == (1 if applied else 2)
    assert [pooled.edit for pooled in pool.edits] == ([conflict.sides[applied]] if applied else [])


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
    found = patches(*(edit(text, n, cited=(f"t{n % 3}",)) for n, text in enumerate(texts)))
    shuffled = found.copy()
    chance.shuffle(shuffled)
    assert aggregate_locally(shuffled) == aggregate_locally(found)


@given(st.lists(edit_texts, max_size=10))
def test_no_edit_is_lost_on_the_way(texts: list[str]) -> None:
    pool = aggregate_locally(patches(*(edit(text, n, cited=(f"t{n}",)) for n, text in enumerate(texts))))
    kept = [name for pooled in pool.edits for name in pooled.merged]
    clashing = {e.id for c in pool.conflicts for side, e in c.sides.items() if side != c.applied}
    assert len(kept) == len(set(kept))
    assert not clashing & set(kept)
    assert pool.proposed == len(texts)
    assert pool.edits or pool.conflicts or not texts


def test_nothing_gives_an_empty_pool() -> None:
    assert aggregate_locally([]) == EditPool()


# By meaning: the optimizer merges, and what it returns is checked

SKILL = Skill("# Triage\n\n- Be brief.\n- Be kind to people.\n")
CONTEXT = OptimizerContext(task_info=TaskInfo(task="Sort tickets."), edit_limits=EditLimits(edits=5))
IDEAS = [
    edit("State the parcel's number.", 1, cited=("t1", "t2"), pattern="no number"),
    edit("Answer with the label only.", 2, cited=("t3",), pattern="chat"),
    edit("Mention which parcel it is, by number.", 3, cited=("t4",), pattern="number missing"),
    edit("Reply with nothing but the label.", 4, cited=("t3", "t5"), pattern="talk"),
]


def letters(*edits: Edit, at_a_time: int = 2) -> list[Patch]:
    """The edits as they come from several letters."""
    parts = [edits[at : at + at_a_time] for at in range(0, len(edits), at_a_time)]
    return [Patch(id=f"l{n}", source="llm/mixed", trajectory_ids=(), edits=tuple(p)) for n, p in enumerate(parts)]


def merged(model: Any, found: list[Patch], *overrides: str, skill: Skill = SKILL) -> EditPool:
    return asyncio.run(aggregate(found, skill, CONTEXT, context(*overrides, optimizer=model)))


def row(ids: list[str], text: str, **fields: str) -> dict[str, Any]:
    return {"ids": ids, "op": "add", "section": "Rules", "anchor": "", "text": text, "pattern": "p", **fields}


def test_what_the_optimizer_merges_names_all_that_it_replaces_and_their_support_adds_up() -> None:
    reply = {"edits": [row(["e01", "e03"], "State the parcel's number."), row(["e04", "e02"], "Reply with the label.")]}
    model = Scripted(merge=[reply])
    pool = merged(model, letters(*IDEAS))
    assert [(p.edit.id, p.merged, p.support) for p in pool.edits] == [
        ("e01", ("e01", "e03"), 3),
        ("e02", ("e04", "e02"), 2),
    ]
    assert [p.edit.trajectory_ids for p in pool.edits] == [("t1", "t2", "t4"), ("t3", "t5")]
    assert [p.edit.text for p in pool.edits] == ["State the parcel's number.", "Reply with the label."]
    assert (pool.proposed, pool.merged) == (4, 2)
    schema = model.requests[0].schema
    assert schema
    assert schema.body["properties"]["edits"]["items"]["properties"]["ids"]["items"]["enum"] == [
        "e01", "e02", "e03", "e04",
    ]  # fmt: skip


BAD_ROWS = {
    "an invented number": (row(["e01", "e03"], "State the parcel's number, 7 digits."), "no proposal said: 7"),
    "an invented name": (row(["e01", "e03"], "State the number that Anna gave."), "says what no proposal said: Anna"),
    "an invented quotation": (row(["e01", "e03"], 'Say "parcel first".'), "says what no proposal said: parcel first"),
    "an unknown id": (row(["e99"], "State the parcel's number."), "names no proposal that is left"),
    "no id": (row([], "State the parcel's number."), "names no proposal that is left"),
    "an unknown op": (row(["e01", "e03"], "State the number.", op="explode"), "is malformed"),
    "no text": (row(["e01", "e03"], "  "), "has no text"),
    "an anchor that is not there": (
        row(["e01", "e03"], "State the number.", op="modify", anchor="- Be rude."), "its anchor is not in the document",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_merge_that_cannot_be_used_leaves_the_proposals_and_is_counted(bad: str) -> None:
    wrong, problem = BAD_ROWS[bad]
    pool = merged(Scripted(merge=[{"edits": [wrong], "conflicts": []}]), letters(*IDEAS))
    assert [p.edit for p in pool.edits] == IDEAS
    (asked,) = pool.asked
    assert (asked.stage, asked.lost) == ("merge", "")
    assert problem in asked.unusable[0]


def test_facts_of_the_skill_and_of_the_proposals_may_be_put_together() -> None:
    skill = Skill("- For a login, answer RED.\n")
    rows = [
        edit("- For a login, answer RED, and for a fee BLUE.", 1, op="modify", anchor="- For a login, answer RED."),
        edit("For 2 fees, answer GREEN.", 2),
    ]
    text = "- For a login, answer RED, for a fee BLUE, for 2 fees GREEN."
    reply = {"edits": [row(["e01", "e02"], text, op="modify", anchor="- For a login, answer RED.")]}
    pool = merged(Scripted(merge=[reply]), letters(*rows, at_a_time=1), skill=skill)
    assert [(p.edit.op, p.edit.text, p.merged) for p in pool.edits] == [("modify", text, ("e01", "e02"))]


def test_a_proposal_that_two_rows_claim_goes_into_the_first() -> None:
    reply = {
        "edits": [row(["e01", "e03"], "State the parcel's number."), row(["e03", "e02"], "Answer with the label.")]
    }
    pool = merged(Scripted(merge=[reply]), letters(*IDEAS))
    assert [p.merged for p in pool.edits] == [("e01", "e03"), ("e02",), ("e04",)]


def test_contradictions_that_the_optimizer_names_are_flagged() -> None:
    named = [{"reason": "which parcel?", "a": "e03", "b": "e01"}, {"reason": "?", "a": "e01", "b": "e77"}]
    pool = merged(Scripted(merge=[{"edits": [], "conflicts": named}]), letters(*IDEAS))
    (conflict,) = pool.conflicts
    assert (conflict.a.id, conflict.b and conflict.b.id, conflict.reason) == ("e03", "e01", "which parcel?")
    assert [p.edit.id for p in pool.edits] == ["e02", "e04"]


class Down(Spy):
    async def chat(self, request: ChatRequest) -> ChatReply:
        raise TransientError("503: down for today")


@pytest.mark.parametrize("model", [Scripted(merge=["no idea", "still none"]), Down()], ids=["no JSON", "down"])
def test_a_lost_merge_leaves_everything_as_it_was_and_says_why(model: Any) -> None:
    pool = merged(model, letters(*IDEAS), "hardware.max_retries=0")
    assert [p.edit for p in pool.edits] == IDEAS
    assert [bool(asked.lost) for asked in pool.asked] == [True]


@pytest.mark.parametrize(
    ("found", "overrides"),
    [
        (letters(*IDEAS, at_a_time=4), ()),
        (letters(*IDEAS), ("gradient.merge=local",)),
        ([patch.model_copy(update={"source": "exemplar/batch"}) for patch in letters(*IDEAS)], ()),
    ],
    ids=["one letter", "by the config", "no letters of an LLM"],
)
def test_nobody_is_asked_where_one_letter_has_all_or_no_optimizer_merges(
    found: list[Patch], overrides: tuple[str, ...]
) -> None:
    pool = merged(Scripted(), found, *overrides)
    assert [p.edit for p in pool.edits] == IDEAS
    assert pool.asked == ()


def test_near_copies_of_several_letters_need_no_question() -> None:
    copies = [edit("Give it.", n, cited=(f"t{n}",)) for n in range(1, 4)]
    pool = merged(Scripted(), letters(*copies, at_a_time=1))
    assert [(p.merged, p.support) for p in pool.edits] == [(("e01", "e02", "e03"), 3)]


def test_many_letters_are_merged_level_by_level_and_nothing_is_lost_or_counted_twice() -> None:
    """Nine letters, each with two of three rules in one of three wordings, three letters at a time."""
    wordings = ("- For {}, answer {}.", "- For {}, answer {}. Always.", "- For {}, answer {}. This holds for all.")
    codes = {"maple": "KX-42", "cedar": "AB-10", "amber": "QQ-77"}
    edits = []
    for letter in range(9):
        for topic in [name for n, name in enumerate(codes) if n != letter % 3]:
            number, text = len(edits) + 1, wordings[letter // 3].format(topic, codes[topic])
            edits.append(edit(text, number, cited=(f"t{number:02d}",), pattern=f"no rule for {topic}"))
    spy = Spy()
    pool = merged(spy, letters(*edits), "gradient.merge_fan_in=3")
    assert len(spy.asked("merge")) == 3 + 1
    assert sorted(topic for p in pool.edits for topic in rules_in(p.edit.text)) == sorted(codes)
    assert [p.support for p in pool.edits] == [6, 6, 6]
    assert sorted(name for p in pool.edits for name in p.merged) == [e.id for e in edits]
    lines = [json.loads(line) for line in spy.asked("merge")[-1].splitlines() if line.startswith("{")]
    assert sum(line["support"] for line in lines) == 18, "support adds up over the levels"


def test_two_codes_for_one_topic_are_a_conflict_and_stay_one_over_the_levels() -> None:
    rules = [edit(f"- For maple, answer {code}.", n, cited=(f"t{n}",)) for n, code in enumerate(("KX-42", "ZZ-00"), 1)]
    more = [edit("- For cedar, answer AB-10.", 3), edit("- For amber, answer QQ-77.", 4)]
    pool = merged(Spy(), letters(*rules, *more, at_a_time=1), "gradient.merge_fan_in=2")
    assert [{c.a.text, c.b and c.b.text} for c in pool.conflicts] == [{rule.text for rule in rules}]
    assert not any("maple" in p.edit.text for p in pool.edits)


def test_a_conflict_whose_side_is_merged_on_a_higher_level_is_about_the_merged_edit() -> None:
    first = {"edits": [], "conflicts": [{"reason": "label or number", "a": "e01", "b": "e02"}]}
    second = {"edits": [], "conflicts": []}
    third = {"edits": [row(["e01", "e03"], "State the parcel's number.")], "conflicts": []}
    pool = merged(Scripted(merge=[first, second, third]), letters(*IDEAS, at_a_time=1), "gradient.merge_fan_in=2")
    (conflict,) = pool.conflicts
    assert (conflict.a.id, conflict.a.trajectory_ids, conflict.applied) == ("e01", ("t1", "t2", "t4"), "a")
    assert [p.edit.id for p in pool.edits] == ["e01", "e04"]


def test_the_simulated_merger_states_what_the_letter_says_and_no_more() -> None:
    model = SimulatedModel("sim:world")
    assert [p.edit for p in merged(model, letters(*IDEAS)).edits] == IDEAS, "advice is not its business"
