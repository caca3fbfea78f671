"""A skill keeps every byte that no edit touches; an edit applies as a whole or is skipped with a reason."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from bpe_openai import get_encoding
from hypothesis import given
from hypothesis import strategies as st

import skillopt
from skillopt.skill import Edit, SizeLimits, Skill, apply_edits
from skillopt.skill.document import CLOSE_MARKER, OPEN_MARKER
from skillopt.skill.edit import whole_section
from skillopt.skill.tokens import count_tokens
from support import REPO

LINES = [
    "# Title",
    "## Rules",
    "## Rules",
    "### Form ###",
    "####### seven marks are no heading",
    "#no heading",
    "- Give the date as 2024-01-31.",
    "- Give the date.",
    "* Never guess.",
    "1. First look, then answer.",
    "Plain words.",
    "",
    "",
    "   ",
    "```python",
    "```",
    "~~~",
    "````",
    "    # indented",
    "a tab\tand \u00e9\u4e2d\U0001f600 and \u2028 and \x0b",
    "<!-- a comment -->",
    "<!-- skillopt:protected",
    "--> slow_update",
    OPEN_MARKER,
    CLOSE_MARKER,
    f"{OPEN_MARKER} x {CLOSE_MARKER}",
    "<!--skillopt:protected slow_update-->",
]

ends = st.sampled_from(["\n", "\r\n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Markdown with fences, fake, nested and stray markers, in either kind of line end or both."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=14))
    end = draw(ends)
    mixed = draw(st.booleans())
    text = "".join(line + (draw(ends) if mixed else end) for line in lines)
    return text + draw(st.sampled_from(["", "no line end", " "]))


@st.composite
def edits_for(draw: st.DrawFn, text: str, most: int = 6) -> list[Edit]:
    """Sensible and hostile edits of `text`: pieces of it as anchors, markers and control characters as text."""
    pieces = st.sampled_from([*LINES, "New words.", "a\nb", "x\r\ny", "\x00", "\x1b[31m", "cr\ralone", "\ud800", ""])
    out = []
    for number in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(text)))
        anchor = text[at : at + draw(st.integers(0, 40))]
        if draw(st.booleans()):
            anchor = draw(pieces)
        out.append(
            Edit(
                id=f"e{number}",
                op=draw(st.sampled_from(["add", "modify", "delete"])),
                section=draw(
                    st.sampled_from(["", "Rules", "title", "## FORM", "Brand new", "C#", "a\nb", OPEN_MARKER])
                ),
                anchor=anchor,
                text=draw(st.lists(pieces, max_size=3).map("\n".join)),
                trajectory_ids=draw(st.sampled_from([("t1",), ("t1", "t2"), ()])),
            )
        )
    return out


@st.composite
def documents_and_edits(draw: st.DrawFn, guided: bool = False) -> tuple[Skill, list[Edit]]:
    skill = Skill(draw(documents()))
    if guided:
        skill = skill.with_guidance(draw(st.sampled_from(["Keep it.", "## Rules\nKeep.\n## Form\nIt.", ""])))
        skill = Skill(skill.text + draw(documents()))
    return skill, draw(edits_for(skill.text))


def edit(op: str, **fields: object) -> Edit:
    return Edit.model_validate({"id": "e1", "op": op, "trajectory_ids": ["t1"], **fields})


def only_skip(skill: Skill, *edits: Edit, limits: SizeLimits | None = None) -> str:
    """The kind of skip of the last edit."""
    return apply_edits(skill, edits, limits).skipped[-1].kind


def regions(skill: Skill) -> list[str]:
    return [skill.text[span.start : span.end] for span in skill.protected]


# Sections


@given(documents())
def test_sections_cover_the_text_without_gap_or_overlap(text: str) -> None:
    spans = [section.span for section in Skill(text).sections]
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    assert all(a.end == b.start for a, b in pairwise(spans))


@given(documents())
def test_every_heading_but_the_first_section_begins_a_line(text: str) -> None:
    for section in Skill(text).sections:
        if section.level:
            assert section.span.start == 0 or text[section.span.start - 1] == "\n"
            assert re.match(r" {0,3}#{1,6}(\s|$)", text[section.span.start :])


@pytest.mark.parametrize(
    "fence",
    ["```\n# no\n```", "~~~\n# no\n~~~", "````\n```\n# no\n````", "```\n# no\n~~~\n# no\n```", "```sh\r\n# no\r\n```"],
)
def test_headings_in_code_fences_are_none(fence: str) -> None:
    titles = [s.title for s in Skill(f"# A\n{fence}\n# B\n").sections]
    assert titles == ["A", "B"]


def test_a_fence_that_never_closes_hides_all_headings_below() -> None:
    assert [s.title for s in Skill("# A\n```\n# B\n# C").sections] == ["A"]


def test_backticks_in_the_info_string_open_no_fence() -> None:
    assert [s.title for s in Skill("``` a ` b\n# A\n").sections] == ["", "A"]


def test_a_heading_loses_its_marks_and_nothing_else() -> None:
    found = [(s.level, s.title) for s in Skill("# A b #\n###### C# ##\n#\n    # code\n").sections]
    assert found == [(1, "A b"), (6, "C#"), (1, "")]


# What stays as it is


@given(documents())
def test_no_edits_leave_the_text_as_it_is(text: str) -> None:
    assert apply_edits(Skill(text), []).skill.text == text


@given(documents_and_edits())
def test_skipped_edits_leave_the_text_as_it_is(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    skipped = {skip.edit_id for skip in apply_edits(skill, edits).skipped}
    alone = [e for e in edits if e.id in skipped and apply_edits(skill, [e]).skipped]
    assert apply_edits(skill, alone).skill.text == skill.text


@given(documents_and_edits())
def test_every_edit_ends_applied_or_skipped_once_and_with_a_reason(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits)
    ends = [e.id for e in outcome.applied] + [s.edit_id for s in outcome.skipped]
    assert sorted(ends) == [e.id for e in edits]
    assert all(skip.kind and skip.reason for skip in outcome.skipped)
    assert not outcome.applied or outcome.skill.text != skill.text or len(outcome.applied) > 1


@given(documents_and_edits())
def test_skipped_edits_have_no_part_in_the_result(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits)
    again = apply_edits(skill, outcome.applied)
    assert again.skill.text == outcome.skill.text
    assert again.applied == outcome.applied


@st.composite
def numbered_documents(draw: st.DrawFn) -> tuple[Skill, dict[int, str]]:
    """Lines that each stand once, and what is to happen to some of them."""
    count = draw(st.integers(1, 12))
    end = draw(ends)
    gaps = [draw(st.sampled_from([end, end * 2, end * 3])) for _ in range(count)]
    text = "".join(f"- Line {n} of all.{gap}" for n, gap in zip(range(count), gaps, strict=True))
    fates = draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from(["modify", "delete"])))
    return Skill(text[: -len(gaps[-1])] if draw(st.booleans()) else text), fates


@given(numbered_documents(), st.randoms(use_true_random=False))
def test_text_outside_the_touched_lines_survives_byte_for_byte(
    case: tuple[Skill, dict[int, str]], chance: random.Random
) -> None:
    skill, fates = case
    edits = [edit(op, id=f"e{n}", anchor=f"- Line {n} of all.", text=f"- New {n}.") for n, op in fates.items()]
    chance.shuffle(edits)
    outcome = apply_edits(skill, edits)
    assert not outcome.skipped
    # The untouched stretches, in order, with what must stand between them.
    expected = ""
    for part in re.split(r"(- Line \d+ of all\.)", skill.text):
        number = re.match(r"- Line (\d+)", part)
        fate = fates.get(int(number[1])) if number else None
        expected += f"- New {int(number[1])}." if number and fate == "modify" else "" if fate == "delete" else part
    if "delete" in fates.values():  # a deleted line takes line breaks with it, and nothing else
        assert re.split(r"[\r\n]+", outcome.skill.text.strip()) == re.split(r"[\r\n]+", expected.strip())
        kept = [n for n in range(12) if n not in fates and f"- Line {n} of" in skill.text]
        for a, b in pairwise(kept):
            between = re.search(rf"(?s)- Line {a} of all\..*- Line {b} of all\.", skill.text)
            if b == a + 1 and between:
                assert between[0] in outcome.skill.text
    else:
        assert outcome.skill.text == expected


@given(documents(), st.sampled_from(["", "Rules", "Title", "Brand new"]))
def test_an_addition_takes_nothing_away(text: str, section: str) -> None:
    outcome = apply_edits(Skill(text), [edit("add", section=section, text="- Added.")])
    if outcome.applied:
        new = outcome.skill.text
        at = next(i for i, (a, b) in enumerate(zip(text + "\0", new, strict=False)) if a != b)
        assert new.endswith(text[at:])
        heading = f"## {section}" if section and not Skill(text).find_sections(section) else ""
        assert sorted("".join(new.split())) == sorted("".join(f"{text} {heading} - Added.".split()))


def test_a_document_with_windows_line_ends_keeps_them() -> None:
    skill = Skill("# A\r\n\r\n- one\r\n- two\r\n")
    new = [
        edit("add", section="A", text="- three\n- four"),
        edit("delete", anchor="- one"),
        edit("add", section="B", text="x"),
    ]
    outcome = apply_edits(skill, new)
    assert outcome.skill.text == "# A\r\n\r\n- two\r\n- three\r\n- four\r\n\r\n## B\r\n\r\nx\r\n"


# Protected regions


@given(documents_and_edits(guided=True))
def test_protected_regions_survive_any_edits(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits)
    assert regions(outcome.skill) == regions(skill)
    assert outcome.skill.guidance == skill.guidance
    assert outcome.skill.with_guidance("Next.").guidance == "Next."


@given(documents_and_edits(guided=True))
def test_no_edit_brings_a_marker_in(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    marker = re.compile(r"<!--\s*/?\s*skillopt\s*:", re.IGNORECASE)
    assert len(marker.findall(apply_edits(skill, edits).skill.text)) <= len(marker.findall(skill.text))


def test_a_marker_cannot_be_put_together_from_pieces() -> None:
    skill = Skill(f"<!-- cut skillopt:protected slow_update -->\n\nKeep me.\n\n{CLOSE_MARKER}\n")
    assert only_skip(skill, edit("delete", anchor=" cut")) == "protected"
    assert only_skip(Skill("<!-- cut skillopt: -->"), edit("delete", anchor=" cut")) == "protected"


@pytest.mark.parametrize(
    "anchor", ["Mind the gap.", OPEN_MARKER, f"end.\n\n{OPEN_MARKER}", f"gap.\n{CLOSE_MARKER}\nmore"]
)
@pytest.mark.parametrize("op", ["modify", "delete"])
def test_an_edit_never_spans_or_touches_a_protected_region(op: str, anchor: str) -> None:
    skill = Skill("The end.\n").with_guidance("Mind the gap.")
    skill = Skill(skill.text + "more\n")
    assert only_skip(skill, edit(op, anchor=anchor, text=anchor.replace("skillopt", "s"))) == "protected"


def test_the_second_of_two_regions_is_as_safe_as_the_first() -> None:
    two = f"{OPEN_MARKER}\na\n{CLOSE_MARKER}\n\n{OPEN_MARKER}\n## X\nb\n## Y\nc\n{CLOSE_MARKER}\n"
    outcome = apply_edits(Skill(two), [edit("add", section="X", text="evil"), edit("modify", anchor="b\n", text="z\n")])
    assert regions(outcome.skill) == regions(Skill(two))


def test_an_anchor_that_also_stands_in_guidance_means_the_other_place() -> None:
    skill = Skill("Be brief.\n").with_guidance("Be brief.")
    outcome = apply_edits(skill, [edit("modify", anchor="Be brief.", text="Be short.")])
    assert outcome.skill.text.startswith("Be short.\n")
    assert outcome.skill.guidance == "Be brief."


def test_a_section_that_stands_only_in_guidance_is_created_outside_of_it() -> None:
    skill = Skill("# A\n").with_guidance("## Form\nKeep.")
    outcome = apply_edits(skill, [edit("add", section="Form", text="- New.")])
    assert outcome.skill.text == "# A\n\n## Form\n\n- New.\n\n" + skill.text.removeprefix("# A\n\n")


@pytest.mark.parametrize("text", ["\x00", "a\x1b[2Jb", "a\rb", "\x7f", "\x9b31m", "a\ud800", "\udfff"])
def test_control_characters_and_lone_surrogates_never_enter_a_document(text: str) -> None:
    for hostile in (
        edit("add", text=text + "x"),
        edit("add", section=text + "x", text="x"),
        edit("modify", anchor="A", text=text),
    ):
        assert only_skip(Skill("# A"), hostile) in {"control_characters", "empty"}


def test_an_edit_can_be_stored_whatever_its_rationale_holds() -> None:
    assert "?" in edit("add", rationale="broken \ud83d", pattern="\udc00").model_dump_json()


@pytest.mark.parametrize("impact", [10**400, -(10**400), float("inf"), float("nan"), -1, 7, True])
def test_impact_is_clamped_whatever_the_model_says(impact: float) -> None:
    assert 0 <= edit("add", impact=impact).impact <= 1


def test_an_edit_of_a_megabyte_is_skipped_at_once() -> None:
    big = ["x " * 500_000, "\n".join(["# H"] * 250_000), "```\n" * 250_000, OPEN_MARKER * 25_000]
    skill = Skill("# A\n").with_guidance("Keep.")
    edits = [
        edit(op, id=f"{op}{n}", anchor=text, text=text, section=text)
        for op in ("add", "modify", "delete")
        for n, text in enumerate(big)
    ]
    outcome = apply_edits(skill, edits)
    assert outcome.skill.text == skill.text
    assert len(outcome.skipped) == 12


def test_thousands_of_edits_keep_the_region_and_the_limits() -> None:
    skill = Skill("# A\n\n- one\n").with_guidance("Keep.")
    edits = [edit("add", id=f"e{n}", section=f"S{n % 5}", text=f"- rule {n}") for n in range(1500)]
    edits += [edit("delete", id=f"d{n}", anchor="- one") for n in range(1500)]
    outcome = apply_edits(skill, edits, SizeLimits(max_skill_tokens=300))
    assert len(outcome.applied) + len(outcome.skipped) == 3000
    assert outcome.skill.tokens <= 300
    assert outcome.skill.guidance == "Keep."
    assert sum(e.op == "delete" for e in outcome.applied) == 1


# Each edit by itself


def test_two_edits_on_the_same_text_never_both_apply() -> None:
    skill = Skill("- Give the date as it stands.\n")
    first = edit("modify", id="a", anchor="the date as", text="a date as")
    for second in (
        edit("modify", id="b", anchor="date as it", text="day as it"),
        edit("delete", id="b", anchor="- Give the date as it stands."),
        edit("modify", id="b", anchor="the date as", text="one date as"),
    ):
        for pair in ([first, second], [second, first]):
            outcome = apply_edits(skill, pair)
            assert [e.id for e in outcome.applied] == [pair[0].id]
            assert [(s.edit_id, s.kind) for s in outcome.skipped] == [(pair[1].id, "overlap")]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.booleans()), min_size=2, max_size=8))
def test_applied_edits_are_pairwise_apart(spots: list[tuple[int, int, bool]]) -> None:
    text = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"
    edits = [
        edit("delete" if gone else "modify", id=f"e{n}", anchor=text[at : at + size], text=f"<{n}>")
        for n, (at, size, gone) in enumerate(spots)
    ]
    applied = apply_edits(Skill(text), edits).applied
    spans = sorted((text.index(e.anchor), text.index(e.anchor) + len(e.anchor)) for e in applied)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert edits[0] in applied


def test_an_anchor_that_stands_several_times_is_ambiguous_until_a_section_tells_them_apart() -> None:
    skill = Skill("# A\n\nBe brief.\n\n# B\n\nBe brief.\n")
    assert only_skip(skill, edit("delete", anchor="Be brief.")) == "ambiguous"
    assert only_skip(skill, edit("delete", anchor="Be brief.", section="C")) == "ambiguous"
    outcome = apply_edits(skill, [edit("modify", anchor="Be brief.", text="Be short.", section="## b")])
    assert outcome.skill.text == "# A\n\nBe brief.\n\n# B\n\nBe short.\n"
    assert only_skip(Skill("aaa"), edit("delete", anchor="aa")) == "ambiguous"


def test_a_modify_that_names_a_section_replaces_its_anchor_everywhere_in_that_section() -> None:
    skill = Skill("# A\n\nSum: 1\n\n# B\n\nSum: 2\n\nSum: 3\n")
    every = edit("modify", anchor="Sum:", text="Fee:", section="B")
    assert apply_edits(skill, [every]).skill.text == "# A\n\nSum: 1\n\n# B\n\nFee: 2\n\nFee: 3\n"
    assert only_skip(skill, edit("modify", anchor="Sum:", text="Fee:")) == "ambiguous"
    assert only_skip(skill, edit("delete", anchor="Sum:", section="B")) == "ambiguous"
    assert only_skip(Skill("# A\naaa\n"), edit("modify", anchor="aa", text="b", section="A")) == "ambiguous"


def test_two_sections_of_one_title_do_not_tell_anchors_apart() -> None:
    skill = Skill("# A\nBe brief.\n# A\nBe brief.\n")
    assert only_skip(skill, edit("delete", anchor="Be brief.", section="A")) == "ambiguous"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"op": "add", "text": "x", "trajectory_ids": []}, "no_trajectory"),
        ({"op": "add", "text": " \n"}, "empty"),
        ({"op": "add", "text": "## A", "section": "A"}, "empty"),
        ({"op": "modify", "anchor": "old", "text": ""}, "empty"),
        ({"op": "modify", "anchor": "", "text": "x"}, "anchor_missing"),
        ({"op": "modify", "anchor": "OLD", "text": "x"}, "anchor_missing"),
        ({"op": "delete", "anchor": "\n"}, "anchor_missing"),
        ({"op": "modify", "anchor": "old", "text": "old"}, "no_change"),
        ({"op": "add", "text": "x", "section": "a\nb"}, "section"),
        ({"op": "add", "text": "old"}, "duplicate"),
        ({"op": "add", "text": "- old", "section": "A"}, "duplicate"),
        ({"op": "add", "text": "x " * 500}, "too_large"),
        ({"op": "add", "text": "x", "section": "word " * 500}, "too_large"),
        ({"op": "add", "text": "```\nopen"}, "structure"),
        ({"op": "add", "text": "```\nopen\n~~~"}, "structure"),
        ({"op": "add", "text": "x\u2028```\n```"}, "structure"),
        ({"op": "add", "text": "<!-- open"}, "structure"),
        ({"op": "add", "text": "x", "section": "<!-- open"}, "structure"),
        ({"op": "modify", "anchor": "old\n", "text": "new"}, "structure"),
        ({"op": "add", "text": f"x {CLOSE_MARKER}"}, "protected"),
        ({"op": "add", "text": "<!--SKILLOPT:x"}, "protected"),
        ({"op": "add", "text": "x\x07"}, "control_characters"),
    ],
)
def test_an_unfit_edit_is_skipped_under_its_kind(change: dict[str, object], kind: str) -> None:
    skill = Skill("# A\n\nold\n# B\n")
    assert only_skip(skill, edit(**{"op": "add", **change})) == kind  # type: ignore[arg-type]


@pytest.mark.parametrize("there", ["- Give 12", "- Give 1.5", "- Give 1 of 2", "- Do not Give 1"])
def test_a_longer_rule_does_not_make_a_shorter_one_a_duplicate(there: str) -> None:
    assert apply_edits(Skill(f"{there}\n"), [edit("add", text="- Give 1")]).skill.text == f"{there}\n- Give 1\n"


@given(documents_and_edits())
def test_an_edit_never_turns_headings_around_it_into_code(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    skill = Skill(f"# First\n\n{skill.text}\n\n# Last\n")
    was = "Last" in [s.title for s in skill.sections]
    outcome = apply_edits(skill, [e for e in edits if "Last" not in e.anchor])
    assert ("Last" in [s.title for s in outcome.skill.sections]) == was


def test_balanced_fences_of_any_kind_may_be_added() -> None:
    for code in ("```\nx\n```", "````md\n```\nx\n````", "~~~\n```\n~~~"):
        assert apply_edits(Skill("# A\n\n# B\n"), [edit("add", section="A", text=code)]).applied


def test_a_missing_section_is_created_once() -> None:
    rules = [
        edit("add", id=f"e{n}", section=name, text=f"- Rule {n}.")
        for n, name in enumerate(["New One", "## new  one", "NEW ONE #"])
    ]
    outcome = apply_edits(Skill("# A\n"), rules)
    assert outcome.skill.text == "# A\n\n## New One\n\n- Rule 0.\n- Rule 1.\n- Rule 2.\n"
    later = apply_edits(outcome.skill, [edit("add", section="New One #", text="- Rule 3.")])
    assert later.skill.text == outcome.skill.text + "- Rule 3.\n"


def test_an_addition_goes_to_the_end_of_its_section_and_before_guidance() -> None:
    skill = Skill("# A\n\n- one\n\n# B\n\n- two\n").with_guidance("Keep.")
    outcome = apply_edits(
        skill, [edit("add", section="a", text="- three"), edit("add", id="e2", section="B", text="# B\n- four")]
    )
    region = f"{OPEN_MARKER}\nKeep.\n{CLOSE_MARKER}\n"
    assert outcome.skill.text == f"# A\n\n- one\n- three\n\n# B\n\n- two\n- four\n\n{region}"


SECTIONED = Skill("# Job\n\nSay little.\n\n## Codes\n\n- Train: T1\n- Taxi: T2\n\n## Form\n\nThe code alone.\n")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"op": "modify", "text": "- Bus: B1"}, "## Codes\n\n- Bus: B1\n\n## Form"),
        ({"op": "modify", "text": "## Codes\n- Bus: B1\n"}, "## Codes\n\n- Bus: B1\n\n## Form"),
        ({"op": "delete"}, "Say little.\n\n## Form"),
    ],
    ids=["modified", "its heading repeated", "deleted"],
)
def test_a_section_without_an_anchor_is_changed_as_a_whole(change: dict[str, str], left: str) -> None:
    edit = whole_section(Edit(id="e", section="codes", trajectory_ids=("t1",), **change), SECTIONED)
    assert edit.anchor == "## Codes\n\n- Train: T1\n- Taxi: T2"
    result = apply_edits(SECTIONED, [edit])
    assert not result.skipped
    assert left in result.skill.text
    assert "Train" not in result.skill.text


@pytest.mark.parametrize("section", ["", "Prices"])
def test_an_edit_without_anchor_and_known_section_stays_unfit(section: str) -> None:
    edit = Edit(id="e", op="modify", section=section, text="x", trajectory_ids=("t1",))
    assert whole_section(edit, SECTIONED) == edit
    assert [skip.kind for skip in apply_edits(SECTIONED, [edit]).skipped] == ["anchor_missing"]


def test_a_whole_section_ends_before_guidance() -> None:
    guided = SECTIONED.with_guidance("- Look twice.")
    edit = whole_section(Edit(id="e", op="modify", section="Form", text="One word.", trajectory_ids=("t1",)), guided)
    result = apply_edits(guided, [edit])
    assert result.skill.guidance == "- Look twice."
    assert "## Form\n\nOne word.\n" in result.skill.text


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("a\nb\nc\n", "b", "a\nc\n"),
        ("a\nb\nc\n", "a", "b\nc\n"),
        ("a\nb\nc\n", "c", "a\nb\n"),
        ("a\nb", "b", "a"),
        ("a\n\nb\n\nc\n", "b", "a\n\nc\n"),
        ("a\r\nb\r\nc\r\n", "b", "a\r\nc\r\n"),
        ("a b c\n", " b", "a c\n"),
        ("a\n", "a", ""),
    ],
)
def test_a_deleted_line_takes_its_line_break_along(text: str, gone: str, left: str) -> None:
    assert apply_edits(Skill(text), [edit("delete", anchor=gone)]).skill.text == left


# Limits


@given(documents_and_edits(), st.integers(1, 40), st.integers(1, 200))
def test_limits_hold(case: tuple[Skill, list[Edit]], most_edit: int, most_skill: int) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits, SizeLimits(max_edit_tokens=most_edit, max_skill_tokens=most_skill))
    assert outcome.skill.tokens <= max(most_skill, skill.tokens)
    assert all(count_tokens(e.text) <= most_edit for e in outcome.applied if e.op != "delete")


def test_a_document_above_the_cap_may_shrink_but_not_grow() -> None:
    skill = Skill("- one two three four five\n- six\n")
    limits = SizeLimits(max_skill_tokens=5)
    assert only_skip(skill, edit("add", text="- seven"), limits=limits) == "skill_too_long"
    assert apply_edits(skill, [edit("delete", anchor="- six")], limits).applied


# Guidance, tokens, hash


@given(documents(), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_guidance_comes_back_as_it_was_given_and_leaves_the_rest(text: str, guidance: str) -> None:
    skill = Skill(text)
    guided = skill.with_guidance(guidance)
    assert guided.guidance == guidance.strip()
    assert guided.with_guidance("Other.").with_guidance(guidance).text == guided.text
    (before, after) = guided.text.split(f"{OPEN_MARKER}\n{guidance.strip()}\n{CLOSE_MARKER}", 1)
    assert (before + after).startswith(text) or regions(skill)
    if regions(skill):
        first = skill.protected[0]
        assert (before, after) == (text[: first.start], text[first.end :])


@pytest.mark.parametrize("marker", [OPEN_MARKER, CLOSE_MARKER, "<!-- / SkillOpt : x"])
def test_guidance_with_a_marker_in_it_is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="marker"):
        Skill("").with_guidance(f"a {marker} b")


def test_a_stray_marker_does_not_draw_the_document_into_the_region() -> None:
    skill = Skill(f"# A\n{OPEN_MARKER}\nMine.\n").with_guidance("Keep.")
    assert skill.guidance == "Keep."
    assert "Mine." in skill.with_guidance("Other.").text


@pytest.mark.parametrize("text", ["word and word ", "a", "\u00e9\u4e2d\U0001f600", "\n", "\U0001f9ff"])
def test_tokens_of_two_megabytes_are_counted_in_seconds(text: str) -> None:
    long = text * (2_000_000 // len(text.encode()))
    assert 0 < count_tokens(long) <= len(long.encode())


def test_tokens_are_about_those_of_the_o200k_vocabulary() -> None:
    assert [count_tokens(text) for text in ("", "hello world", "2024-01-31")] == [0, 2, 6]

    def exact(text: str) -> int:
        return len(get_encoding("o200k_base").encode_ordinary(text))

    sources = [Path(skillopt.__file__).parent / name for name in ("skill/document.py", "models/call.py")]
    for file in (REPO / "README.md", REPO / "docs" / "providers.md", *sources):
        text = file.read_text(encoding="utf-8")
        assert count_tokens(text) == pytest.approx(exact(text), rel=0.1), file
    chinese = "机器学习是人工智能的一个分支。它使用统计技术，使计算机能够从数据中学习，而无需明确编程。"
    assert count_tokens(chinese) == pytest.approx(exact(chinese), rel=0.15)


@given(documents(), documents())
def test_the_hash_tells_texts_apart(a: str, b: str) -> None:
    assert (Skill(a).hash == Skill(b).hash) == (a == b)
