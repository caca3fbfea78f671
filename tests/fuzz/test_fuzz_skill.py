"""Sections, edits, guidance, packages and the patch log, on any text and any edits."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from skillopt.skill import Edit, PatchLog, PatchLogError, SizeLimits, Skill, apply_edits, replay
from skillopt.skill.document import CLOSE_MARKER, MARKER, OPEN_MARKER, open_fence
from skillopt.skill.package import one_line, read_package
from skillopt.skill.parts import rules, without_lines

pytestmark = pytest.mark.fuzz

LINES = [
    *("# Title", "## Rules", "## rules ##", "### Form ###", "#no heading", "####### seven", "#", "    # code", "## C#"),
    *(
        "- Give the date.",
        "* Never guess.",
        "1. First look.",
        "2) Then answer.",
        "  indented",
        "Plain words.",
        "",
        "   ",
    ),
    *("```python", "```", "~~~", "````", "``` a ` b", "<!-- a comment -->", "<!--", "-->", "\x0b", "a\ttab \u2028 é中"),
    *(OPEN_MARKER, CLOSE_MARKER, f"{OPEN_MARKER} x {CLOSE_MARKER}", "<!--skillopt:protected slow_update-->"),
    *("<!-- /skillopt:x", "<!-- SkillOpt : y -->", "---", "description: x", "name: y"),
]
lines = st.one_of(st.sampled_from(LINES), st.sampled_from(LINES), hostile.words)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Markdown of good and bad lines; half a character cannot be in a file, and so in no document."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = "".join(line + end for line in draw(st.lists(lines, max_size=12)))
    return (text + draw(st.sampled_from(["", "no line end", " "]))).encode("utf-8", "replace").decode()


@st.composite
def edits_for(draw: st.DrawFn, text: str) -> list[Edit]:
    """Pieces of the document as anchors, and anything at all as text and section."""
    out = []
    for number in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        anchor = draw(st.one_of(st.just(text[at : at + draw(st.integers(0, 40))]), lines))
        out.append(
            Edit(
                id=f"e{number}",
                op=draw(st.sampled_from(["add", "modify", "delete"])),
                section=draw(st.sampled_from(["", "Rules", "title", "## FORM", "New", "C#", "a\nb", OPEN_MARKER, "#"])),
                anchor=anchor,
                text="\n".join(draw(st.lists(lines, max_size=3))),
                trajectory_ids=draw(st.sampled_from([("t1",), ("t1", "t2"), ("t1",), ()])),
            )
        )
    return out


@st.composite
def cases(draw: st.DrawFn) -> tuple[Skill, list[Edit]]:
    skill = Skill(draw(documents()))
    if draw(st.booleans()):
        skill = skill.with_guidance(draw(st.sampled_from(["Keep it.", "## Rules\nKeep.", "", "```\nx\n```"])))
        skill = Skill(skill.text + draw(documents()))
    return skill, draw(edits_for(skill.text))


def regions(skill: Skill) -> list[str]:
    return [skill.text[span.start : span.end] for span in skill.protected]


@holds_for(documents())
def test_sections_put_together_again_are_the_document(text: str) -> None:
    found = Skill(text).sections
    assert "".join(text[s.span.start : s.span.end] for s in found) == text
    assert all(0 <= s.level <= 6 for s in found)


@holds_for(cases())
def test_edits_leave_protected_regions_markers_and_fences_as_they_are(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits)
    assert regions(outcome.skill) == regions(skill)
    assert len(MARKER.findall(outcome.skill.text)) <= len(MARKER.findall(skill.text))
    assert open_fence(outcome.skill.text) == open_fence(skill.text)
    outcome.skill.text.encode()


@holds_for(cases())
def test_every_edit_is_applied_or_skipped_with_a_reason_and_the_applied_ones_give_the_same_again(
    case: tuple[Skill, list[Edit]],
) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits)
    assert sorted([e.id for e in outcome.applied] + [s.edit_id for s in outcome.skipped]) == [e.id for e in edits]
    assert all(skip.kind and skip.reason for skip in outcome.skipped)
    assert all(edit.trajectory_ids for edit in outcome.applied)
    again = apply_edits(skill, outcome.applied)
    assert (again.skill, again.applied) == (outcome.skill, outcome.applied)


@holds_for(cases())
def test_an_addition_never_lands_outside_its_section(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    for edit in edits:
        home = next(iter(skill.find_sections(edit.section)), None) if edit.section.strip() else None
        outcome = apply_edits(skill, [edit])
        if edit.op == "add" and outcome.applied:
            span = home.span if home else None
            new, old = outcome.skill.text, skill.text
            before, after = (old[: span.start], old[span.end :]) if span else ("", "")
            assert new.startswith(before)
            assert new.endswith(after)
            kept = iter(new)
            assert all(any(char == other for other in kept) for char in old), "something of the old text is gone"


@holds_for(cases())
def test_a_changed_or_deleted_anchor_is_all_that_goes(case: tuple[Skill, list[Edit]]) -> None:
    skill, edits = case
    for edit in edits:
        outcome = apply_edits(skill, [edit])
        if edit.op != "add" and outcome.applied:
            written = edit.text if edit.op == "modify" else ""
            spots = [n for n in range(len(skill.text)) if skill.text.startswith(edit.anchor, n)]
            exact = [skill.text[:n] + written + skill.text[n + len(edit.anchor) :] for n in spots]
            flat = ["".join(text.split()) for text in exact]  # blank lines around a deleted one go with it
            assert "".join(outcome.skill.text.split()) in flat


@holds_for(documents(), documents())
def test_guidance_is_read_back_and_the_rest_stays(text: str, guidance: str) -> None:
    skill = Skill(text)
    if MARKER.search(guidance):
        return
    guided = skill.with_guidance(guidance)
    assert guided.guidance.strip() == guidance.strip()
    assert regions(guided)[1:] == regions(skill)[1:]
    if not skill.protected:
        assert guided.text.startswith(text)


@holds_for(documents())
def test_a_part_taken_out_leaves_a_document_of_the_other_lines(text: str) -> None:
    skill = Skill(text)
    for part in rules(skill):
        left = iter(skill.text)
        assert all(any(char == other for other in left) for char in part.without.text)
        assert part.lines[0] <= part.lines[1]
    assert not rules(without_lines(skill, [part.lines for part in rules(skill)])) or open_fence(text)


@holds_for(documents(), hostile.texts)
def test_a_package_is_its_front_matter_and_its_body_and_a_new_description_is_read_back(text: str, said: str) -> None:
    package = read_package(text)
    assert package.text == text
    try:
        fields = package.fields
    except ValueError:
        return
    if "description" in fields and "\ndescription:" in package.front and len(fields) < 3:
        described = package.with_description(said)
        assert described.body == package.body
        assert one_line(described.description).replace("—", "") == one_line(said).replace("—", "").replace("---", "")


@holds_for(cases(), hostile.raw, st.integers(0, 1 << 20))
def test_a_patch_log_gives_every_version_again_and_a_changed_one_is_refused(
    case: tuple[Skill, list[Edit]], noise: bytes, place: int
) -> None:
    skill, edits = case
    outcome = apply_edits(skill, edits, SizeLimits())
    with tempfile.TemporaryDirectory() as folder:
        log = PatchLog(Path(folder) / "log.jsonl")
        about = {"kind": "edit", "step": 1, "epoch": 1, "version": 1, "before": skill, "after": outcome.skill}
        log.append(outcome.applied, **about, evidence={"after": 1})  # type: ignore[arg-type]
        versions = replay(skill, list(log.entries()))
        assert versions[max(versions)] == outcome.skill
        data = log.path.read_bytes()
        at = place % (len(data) + 1)
        changed = data[:at] + noise + data[at + len(noise) :]
        log.path.write_bytes(changed)
        try:
            entries = list(PatchLog(log.path).entries())
            read = b"".join(entry.line() for entry in entries)
            assert data.startswith(read), "an altered entry was taken"
            replay(skill, entries)
        except PatchLogError as refusal:
            assert str(refusal)  # noqa: PT017
