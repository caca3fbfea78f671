"""Where each line of a skill comes from, and proof that the record was not altered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from skillopt.cli import main
from skillopt.record.damage import find_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, write_json
from skillopt.record.run import Run
from skillopt.record.state import State
from skillopt.skill import Edit, PatchLog, Skill, apply_edits
from skillopt.view.blame import blame, blame_run
from skillopt.view.run_rows import list_runs
from support import train_sim


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    result = train_sim(
        tmp_path_factory.mktemp("blame"),
        "train.num_epochs=2",
        "train.batch_size=6",
        "env.options={rules: 8, train: 24, val: 12, test: 6}",
    )
    return RunDirectory(result.path)


@pytest.fixture
def copy(trained: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained.root, tmp_path / "sim" / "run")
    return RunDirectory(tmp_path / "sim" / "run")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


# Blame


def test_every_line_that_training_added_names_its_edit_and_the_others_the_initial_skill(trained: RunDirectory) -> None:
    lines = blame_run(trained)
    initial = trained.read_skill(0).text.splitlines()
    assert "\n".join(line.text for line in lines) == trained.best_skill.read_text().rstrip("\n")
    for line in lines:
        if line.entry is None:
            assert line.text in initial
        elif line.text.startswith("- For") and line.entry.kind == "edit":
            assert line.text == line.entry.edit.text
            assert line.entry.edit.trajectory_ids
            assert line.entry.evidence["decision"] == "accept"
    kept = {text for text in initial if text in trained.best_skill.read_text().splitlines()}
    rewritten = {line.text for line in lines if line.entry}  # a line may have been lost, and stated again by an edit
    assert kept - rewritten <= {line.text for line in lines if line.entry is None} <= kept
    assert sum(line.entry is not None for line in lines) >= 3


def test_blame_needs_the_patch_log_and_the_initial_skill_alone(trained: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    shutil.copy(trained.patch_log.path, tmp_path)
    shutil.copy(trained.snapshot(0), tmp_path / "skills")
    version = max(entry.version for entry in trained.patch_log.entries())
    assert blame_run(RunDirectory(tmp_path)) == blame_run(trained, version)


def log_of(folder: Path, initial: Skill, *groups: list[Edit]) -> tuple[Skill, PatchLog]:
    log, skill = PatchLog(folder / "patch_log.jsonl"), initial
    for number, edits in enumerate(groups, 1):
        applied = apply_edits(skill, edits)
        assert not applied.skipped
        log.append(
            applied.applied,
            kind="edit",
            step=number,
            epoch=1,
            version=number,
            before=skill,
            after=applied.skill,
            evidence={},
        )
        skill = applied.skill
    return skill, log


def edit(edit_id: str, op: str, text: str, anchor: str = "", section: str = "") -> Edit:
    return Edit(id=edit_id, op=op, text=text, anchor=anchor, section=section, trajectory_ids=("0001-000",))


def test_two_edits_of_one_step_are_told_apart_and_a_later_change_takes_over(tmp_path: Path) -> None:
    initial = Skill("# Top\n\nKeep this.")
    first = [edit("a", "add", "- one", section="Rules"), edit("b", "add", "- two", section="Rules")]
    second = [edit("c", "modify", "- uno", anchor="- one")]
    skill, log = log_of(tmp_path, initial, first, second)
    lines = blame(initial, list(log.entries()), 2)
    owner = {line.text: line.entry.edit.id if line.entry else "initial" for line in lines if line.text}
    assert owner == {"# Top": "initial", "Keep this.": "initial", "## Rules": "a", "- uno": "c", "- two": "b"}
    assert skill.text.endswith("\n")  # the line break that the addition needed did not make it the seed line's author


def test_the_line_of_a_deleted_rule_leaves_no_trace(tmp_path: Path) -> None:
    initial = Skill("- one\n- two\n- three\n")
    _, log = log_of(tmp_path, initial, [edit("a", "delete", "", anchor="- two")])
    assert [(line.text, line.entry) for line in blame(initial, list(log.entries()), 1)] == [
        ("- one", None),
        ("- three", None),
    ]


# Verify


def test_a_sound_run_is_replayed_byte_for_byte(trained: RunDirectory) -> None:
    assert find_damage(trained) == []
    versions = {entry.version for entry in Run(trained).finished_entries()}
    assert len(versions) + 1 == len(list(trained.skills.glob("skill_v*.md")))


def test_any_flipped_byte_of_the_log_is_found_and_its_entry_named(
    copy: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = copy.patch_log.path.read_bytes()
    starts = [0, *(n + 1 for n, byte in enumerate(whole) if byte == 10)]
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        altered = bytearray(whole)
        altered[place] ^= 1
        copy.patch_log.path.write_bytes(altered)
        found = find_damage(copy)
        entry = sum(start <= place for start in starts)
        assert f"entry {entry} " in str(found[0]), (place, found)
    code, shown = said(capsys, "verify", str(copy.root))
    assert code == 1
    assert f"entry {entry}" in shown


def test_changed_missing_and_cut_files_are_named(copy: RunDirectory) -> None:
    last = max(int(path.stem[-4:]) for path in copy.skills.glob("skill_v*.md"))
    text = copy.snapshot(last).read_bytes()
    copy.snapshot(last).write_bytes(text + b" ")
    assert any(f"skill_v{last:04d}.md: was changed" in str(damage) for damage in find_damage(copy))
    copy.snapshot(last).unlink()
    assert any(f"skill_v{last:04d}.md: is missing" in str(damage) for damage in find_damage(copy))
    copy.snapshot(last).write_bytes(text)
    best = copy.best_skill.read_bytes()
    copy.best_skill.write_bytes(best.replace(b"maple", b"cedar", 1))
    assert any("best_skill.md: differs from what the patch log gives" in str(damage) for damage in find_damage(copy))
    copy.best_skill.write_bytes(best)
    assert find_damage(copy) == []
    log = copy.patch_log.path.read_bytes().splitlines(keepends=True)
    copy.patch_log.path.write_bytes(b"".join(log[:-1]))
    assert any("patch_log.jsonl: is too short" in str(damage) for damage in find_damage(copy))


def test_what_an_interrupted_step_left_is_no_problem(copy: RunDirectory) -> None:
    state = State.read(copy.state)
    entries = list(copy.patch_log.entries())
    last = max(entry.version for entry in entries)
    kept = [entry for entry in entries if entry.version < last]
    size = sum(len(entry.line()) for entry in kept)
    state.version = state.current = state.best.version = last - 1
    state.patch_log_size = size
    state.write(copy.state)
    copy.write_best(copy.read_skill(last - 1))
    with copy.patch_log.path.open("ab") as file:
        file.write(b'{"seq": 99, "torn')
    assert find_damage(copy) == []


# Runs and diff


def test_runs_lists_scores_status_and_cost(
    copy: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sim" / "broken").mkdir()
    (tmp_path / "sim" / "broken" / "config.json").write_text("{")
    summary = read_json(copy.summary)
    rows = {row.name: row for row in list_runs(tmp_path)}
    assert rows["run"].status == "finished"
    assert rows["run"].best_val == summary["best"]["val"]
    assert rows["run"].best_test == summary["best"]["test"]
    assert rows["run"].usd == 0
    assert rows["broken"].status == "unreadable"
    write_json(copy.summary, {**summary, "status": "running"})
    assert list_runs(copy.root)[0].status == "interrupted"
    with copy.held():
        assert list_runs(copy.root)[0].status == "running"
    _, shown = said(capsys, "runs", str(tmp_path), "--json")
    assert {json.loads(line)["name"] for line in shown.splitlines()} == {"run", "broken"}


@pytest.mark.parametrize("command", ["report", "blame", "verify", "ablate", "diff"])
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = said(capsys, command, str(tmp_path))
    assert code == 2
    assert "a run's folder" in shown
    assert not list(tmp_path.iterdir())
