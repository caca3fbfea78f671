"""The four sections of a skill that has none of its own: their order, and no empty heading for a target."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_jsonl
from skillopt.skill import Edit, Entry, Skill, apply_edits, replay
from skillopt.skill.patch_log import GENESIS
from skillopt.skill.standard import STANDARD
from support import Spy, train_short

EMPTY = "\n\n".join(f"## {title}" for title in STANDARD) + "\n"


def add(section: str, text: str = "- A rule.") -> Edit:
    return Edit(op="add", section=section, text=f"{text} ({section})", trajectory_ids=("t1",))


def titles(skill: Skill) -> list[str]:
    return [section.title for section in skill.sections if section.level]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Do the task.\n\n{EMPTY}", "Do the task.\n"),
        (EMPTY, ""),
        ("## Edge cases\n\n## Output format\n\nA word.\n", "## Output format\n\nA word.\n"),
        ("A.\n\n## output FORMAT\n\n## Examples\n\nB.\n", "A.\n\n## Examples\n\nB.\n"),
        ("## Edge cases\n\n### Zeros\n\nC.\n", "## Edge cases\n\n### Zeros\n\nC.\n"),
        ("# Output format\n\n## Codes\n\nD.\n", "# Output format\n\n## Codes\n\nD.\n"),
        ("## Codes\n\n## Form\n\nE.\n", "## Codes\n\n## Form\n\nE.\n"),
        ("```\n## Edge cases\n```\n", "```\n## Edge cases\n```\n"),
    ],
)
def test_only_an_empty_standard_section_is_left_out(text: str, shown: str) -> None:
    skill = Skill(text)
    assert skill.shown.text == shown
    assert skill.shown.shown.text == shown
    assert skill.tokens == Skill(shown).tokens


def test_guidance_below_an_empty_section_stays_without_its_heading() -> None:
    skill = Skill(f"Do it.\n\n{EMPTY}").with_guidance("Look twice.")
    assert skill.shown.text == "Do it.\n\nLook twice.\n"
    assert skill.guidance == "Look twice."


def test_edits_can_name_an_empty_section() -> None:
    applied = apply_edits(Skill(f"Do it.\n\n{EMPTY}"), [add("Edge cases"), add("Examples")])
    assert titles(applied.skill) == [*STANDARD, "Examples"]
    assert titles(applied.skill.shown) == ["Edge cases", "Examples"]


@pytest.mark.parametrize("order", list(permutations([*STANDARD, "Examples"]))[::7])
@pytest.mark.parametrize("at_once", [True, False])
def test_new_sections_come_in_the_fixed_order_and_examples_last(order: tuple[str, ...], at_once: bool) -> None:
    skill = Skill("")
    for edits in [[add(title) for title in order]] if at_once else [[add(title)] for title in order]:
        skill = apply_edits(skill, edits).skill
    assert titles(skill) == [*STANDARD, "Examples"]
    assert skill.text.count("- A rule.") == 5
    assert "\n\n\n" not in skill.text


def test_sections_of_other_names_go_to_the_end_as_they_come() -> None:
    skill = apply_edits(Skill("## Codes\n\nX.\n"), [add("Examples"), add("Colours")]).skill
    assert titles(skill) == ["Codes", "Examples", "Colours"]


def test_a_section_before_which_a_new_one_would_go_may_be_replaced_in_the_same_step() -> None:
    skill = Skill("Top.\n\n## Examples\n\nOld.\n")
    anchor = "Top.\n\n## Examples\n\nOld."
    whole = Edit(op="modify", anchor=anchor, text="New.", trajectory_ids=("t1",))
    assert apply_edits(skill, [add("Edge cases"), whole]).skill.text.startswith("New.\n\n## Edge cases")


def test_a_log_of_an_earlier_version_which_put_every_new_section_at_the_end_still_replays() -> None:
    before, edit = Skill("## Examples\n\nX.\n"), add("Edge cases")
    after = apply_edits(before, [edit], in_order=False).skill
    assert titles(after) == ["Examples", "Edge cases"]
    hashes = {"skill_before": before.hash, "skill_after": after.hash, "prev": GENESIS}
    entry = Entry(seq=1, kind="edit", step=1, epoch=1, version=1, edit=edit, evidence={}, **hashes)
    assert replay(before, [entry])[1] == after


def test_a_run_sends_no_empty_heading_to_the_target_and_writes_none(tmp_path: Path) -> None:
    seed = tmp_path / "seed.md"
    seed.write_text(f"Answer with the codes alone.\n\n{EMPTY}")
    target, optimizer = Spy(), Spy()
    models = {"target": target, "optimizer": optimizer}
    result = train_short(tmp_path / "out", f"train.init_skill={seed}", "train.num_epochs=1", models=models)
    assert result.summary.best.version, "something was learned"
    systems = {str(request.messages[0]["content"]) for request in target.requests}
    run = RunDirectory(result.path)
    for text in (*systems, run.best_skill.read_text()):
        assert not any(f"## {title}" in text for title in STANDARD)
    assert all(f"## {title}" in optimizer.asked("reflect")[0] for title in STANDARD)
    prompt = str(optimizer.requests[0].messages[0]["content"])
    assert "General approach, Common patterns, Edge cases, Output format" in prompt
    assert read_jsonl(run.root / "patch_log.jsonl")
