"""A package is trained as a whole: edits land in the right files, all else stays byte for byte, and every command that
looks at a run knows the files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from skills_ref import validate

import skillopt as skillopt_api
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.compare import find_skill
from skillopt.record.damage import find_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.export import export
from skillopt.record.files import read_json
from skillopt.record.package import read_skill, zipped
from skillopt.record.run import Run
from skillopt.sim.model import TOPICS, code_for
from skillopt.skill import FILE, Edit, Skill, apply_edits
from skillopt.skill.edit import SizeLimits
from skillopt.tasks.base import Trajectory
from skillopt.view.blame import blame_run, by_file
from skillopt.view.html import write_report
from skillopt.view.runs_table import diff_report
from skillopt_webui.insight import blamed
from skillopt_webui.view import skill_text
from support import SIM, train_sim
from support import skillopt as command

FRONT = "---\nname: house-codes\ndescription: Codes of the house. Use for tickets.\nlicense: MIT\n---\n"
BODY = "# Ticket codes\n\nAnswer with the codes alone, separated by single spaces.\n"
FILES = {
    "references/about.md": b"# About\n\nWho keeps this.\r\n",
    "references/codes.md": b"# Codes\r\n\r\n- For maple, answer ZZ-99.\r\n",
    "scripts/check.py": b'#!/usr/bin/env python3\nprint("ok")\n',
    "assets/logo.bin": bytes(range(256)),
}


def write_package(folder: Path) -> Path:
    for name, content in {FILE: (FRONT + BODY).encode(), **FILES}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "scripts" / "check.py").chmod(0o755)
    return folder


def quick(out: Path) -> list[str]:
    small = "env.options={rules: 6, train: 12, val: 12, test: 6}"
    steady = [
        "train.num_epochs=1",
        "train.batch_size=6",
        "optimizer.learning_rate=8",
        "optimizer.lr_scheduler=constant",
        "models.optimizer_model=sim:world",
    ]
    return [f"env.output_root={out}", *steady, small]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunDirectory, Path]:
    """A package, the run that trained it, and the package that came of it; by the command line."""
    root = tmp_path_factory.mktemp("imported")
    package, goal = write_package(root / "in" / "house-codes"), root / "to" / "house-codes"
    done = command("train", "--package", str(package), "-c", str(SIM), *quick(root / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert command("export", str(root / "out" / "sim"), "--to", str(goal)).returncode == 0
    (run,) = (root / "out" / "sim").glob("*_seed42-*")
    return package, RunDirectory(run), goal


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_edits_land_in_their_files_and_untouched_files_stay_byte_for_byte(
    imported: tuple[Path, RunDirectory, Path],
) -> None:
    package, run, goal = imported
    before, after = contents(package), contents(goal)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {
        FILE,
        "references/codes.md",
    }
    assert after[FILE].startswith(FRONT.encode() + BODY.encode())
    assert b"Read references/codes.md first" in after[FILE]
    codes = after["references/codes.md"].decode()
    assert codes.count("\r\n") == codes.count("\n"), "a file keeps its line ends"
    for topic in ("maple", "cedar", "amber", "basalt", "cobalt", "dahlia"):
        assert f"For {topic}, answer {code_for(topic, 0)}." in codes
        assert f"For {topic}" not in after[FILE].decode(), "details are not in SKILL.md"
    assert (goal / "scripts" / "check.py").stat().st_mode & 0o100
    assert read_json(run.summary)["best"]["val"] == 1
    assert read_json(run.summary)["initial"]["val"] == 0


def test_the_exported_package_passes_the_real_validator(imported: tuple[Path, RunDirectory, Path]) -> None:
    assert validate(imported[2]) == []
    tool = Path(sys.executable).with_name("agentskills")
    done = subprocess.run([str(tool), "validate", str(imported[2])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_of_a_package_keeps_its_best_as_a_document_and_as_a_folder(
    imported: tuple[Path, RunDirectory, Path],
) -> None:
    _, run, _ = imported
    best = read_skill(run.best_package)
    assert run.best_skill.read_bytes().decode() == best.text
    assert run.read_best().hash == best.hash
    state = read_json(run.state)
    assert run.read_skill(state["best"]["version"]).hash == best.hash
    assert read_skill(run.package).files == {FILE: (FRONT + BODY).encode(), **dict(sorted(FILES.items()))}
    assert run.read_skill(0).hash == read_skill(run.package).hash
    last = run.step(state["step"])
    assert set(read_json(last / "candidate_files.json")) == {"hash", "changed", "removed"}


def test_blame_names_the_edit_of_each_line_of_each_file(imported: tuple[Path, RunDirectory, Path]) -> None:
    _, run, _ = imported
    files = by_file(blame_run(run))
    assert list(files) == [FILE, "references/about.md", "references/codes.md", "scripts/check.py"]
    assert all(line.entry is None for line in files["references/about.md"] + files["scripts/check.py"])
    rules = [line for line in files["references/codes.md"] if line.text.startswith("- For")]
    assert {line.entry.edit.file for line in rules if line.entry} == {"references/codes.md"}
    assert len([line for line in rules if line.entry]) == 6
    (pointer,) = [line for line in files[FILE] if "references/codes.md" in line.text]
    assert pointer.entry
    assert pointer.entry.edit.file == FILE
    row = json.loads((run.patch_log.path).read_text().splitlines()[pointer.entry.seq - 1])
    assert "file" not in row["edit"], "an edit of the one document is stored as ever"
    shown = command("blame", str(run.root), "--file", "references/codes.md", "--line", str(rules[0].number))
    assert f"line {rules[0].number} of references/codes.md: - For maple" in shown.stdout
    assert "instead of: - For maple, answer ZZ-99." in shown.stdout
    refused = command("blame", str(run.root), "--file", "references/none.md")
    assert refused.returncode == 2
    assert "is not a text file of this skill; its text files are: SKILL.md, references/about.md" in refused.stderr


def test_diff_shows_each_file_that_changed_of_runs_versions_and_folders(
    imported: tuple[Path, RunDirectory, Path],
) -> None:
    package, run, goal = imported
    for sides in ((str(run.root), ""), (f"{run.root}@0", str(run.root)), (str(package), str(goal))):
        shown = diff_report(*sides)
        assert [line for line in shown if line.startswith("== ")] == ["== SKILL.md", "== references/codes.md"]
        assert "- - For maple, answer ZZ-99." in shown
    assert diff_report(str(package), f"{run.root}@0")[-1] == "The skills are equal."


@pytest.mark.slow
def test_ablation_leaves_out_parts_of_every_file(imported: tuple[Path, RunDirectory, Path]) -> None:
    _, run, _ = imported
    done = command("ablate", str(run.root))
    assert done.returncode == 0, done.stderr
    (path,) = run.ablation.glob("rule_v*.json")
    found = read_json(path)
    worth = {row["name"]: row["worth"] for row in found["rows"]}
    assert worth["line 5"] == 1, "without the line that names the reference nothing is read"
    assert all(value > 0 for name, value in worth.items() if name.startswith("references/codes.md"))
    assert worth["references/about.md line 3"] == worth["scripts/check.py"] == 0
    idle = next(group for group in found["together"] if group["name"] == "nothing")
    assert {"references/about.md line 3", "scripts/check.py"} <= set(idle["names"])
    assert idle["worth"] == 0


def test_eval_and_compare_take_a_packages_folder(imported: tuple[Path, RunDirectory, Path], tmp_path: Path) -> None:
    package, run, goal = imported
    keys = ["-c", str(SIM), *quick(tmp_path / "out")]
    done = command("eval", *keys, "--skill", str(goal), "--split", "val", "--out", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    assert read_json(tmp_path / "a" / "eval_summary.json")["score"] == 1
    compared = command("compare", str(package), str(run.best_package), *keys)
    assert compared.returncode == 0, compared.stderr
    (found,) = (tmp_path / "out").rglob("comparison.json")
    assert read_json(found)["difference"] == 1


def test_without_its_reference_the_trained_package_knows_nothing(
    imported: tuple[Path, RunDirectory, Path], tmp_path: Path
) -> None:
    shutil.copytree(imported[2], tmp_path / "house-codes")
    (tmp_path / "house-codes" / "references" / "codes.md").unlink()
    keys = ["-c", str(SIM), *quick(tmp_path / "out"), "--split", "val", "--out", str(tmp_path / "a")]
    done = command("eval", *keys, "--skill", str(tmp_path / "house-codes"))
    assert done.returncode == 0, done.stderr
    assert read_json(tmp_path / "a" / "eval_summary.json")["score"] == 0


def test_the_report_shows_the_files(imported: tuple[Path, RunDirectory, Path]) -> None:
    _, run, _ = imported
    write_report(run)
    page, text = run.report.read_text(), run.report_md.read_text()
    assert "references/codes.md" in page
    assert "`references/codes" in text
    assert "For maple, answer" in text


@pytest.mark.parametrize(
    "damage", ["skills/skill_v0001.files.json", "best_skill/references/codes.md", "best_skill/SKILL.md", "best_skill"]
)
def test_damaged_files_of_a_version_are_found(
    imported: tuple[Path, RunDirectory, Path], damage: str, tmp_path: Path
) -> None:
    shutil.copytree(imported[1].root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    if (run.root / damage).is_dir():
        shutil.rmtree(run.root / damage)
    else:
        (run.root / damage).write_text("{}")
    derived = damage.startswith("best_skill")
    assert [(found.path.name, found.derived) for found in find_damage(run)] == [
        ("best_skill" if derived else "skill_v0001.files.json", derived)
    ]


def test_a_changed_package_folder_of_a_run_is_found(imported: tuple[Path, RunDirectory, Path], tmp_path: Path) -> None:
    shutil.copytree(imported[1].root, tmp_path / "run")
    (tmp_path / "run" / "package" / "references" / "about.md").write_text("other")
    done = command("verify", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "have changed since training wrote them" in done.stdout


@pytest.mark.slow
def test_a_run_that_is_begun_again_finds_its_files(tmp_path: Path) -> None:
    package = write_package(tmp_path / "house-codes")
    keys = [*quick(tmp_path / "out"), f"train.init_skill={package}"]
    with pytest.raises(Exception, match="max_calls"):
        train_sim(tmp_path / "out", *keys, "budget.max_calls=35")
    result = train_sim(tmp_path / "out", *keys)
    whole = train_sim(tmp_path / "other", *quick(tmp_path / "other"), f"train.init_skill={package}")
    assert result.best_skill.hash == whole.best_skill.hash
    assert contents(result.path / "skills") == contents(whole.path / "skills")


def test_the_page_shows_all_files_as_one_text_and_gives_them_as_one_archive(
    imported: tuple[Path, RunDirectory, Path], tmp_path: Path
) -> None:
    _, run, _ = imported
    version = read_json(run.state)["best"]["version"]
    shown = skill_text(Run(run), version)
    assert "\n== references/codes.md\n# Codes" in shown
    texts = [line.rstrip("\r") for line in shown.removesuffix("\n").split("\n")]
    assert [text for text, _ in blamed(Run(run), version).lines] == texts
    with ZipFile(BytesIO(zipped(run.read_best()))) as archive:
        archive.extractall(tmp_path / "house-codes")
    assert contents(tmp_path / "house-codes") == contents(run.best_package)
    assert find_skill(f"{run.root}@0", Config.load(SIM), None)[0].hash == read_skill(run.package).hash
    with pytest.raises(UserError, match="there is no"):
        find_skill(f"{run.root}@77", Config.load(SIM), None)


def test_a_runs_own_folders_are_no_links(imported: tuple[Path, RunDirectory, Path], tmp_path: Path) -> None:
    shutil.copytree(imported[1].root, tmp_path / "run")
    for name in ("package", "best_skill"):
        shutil.move(tmp_path / "run" / name, tmp_path / name)
        (tmp_path / "run" / name).symlink_to(tmp_path / name)
    for read in (RunDirectory(tmp_path / "run").read_best, lambda: RunDirectory(tmp_path / "run").read_skill(0)):
        with pytest.raises(UserError, match="is a link"):
            read()


def test_a_run_that_trained_only_the_document_of_a_package_is_read_and_exported(tmp_path: Path) -> None:
    """As versions before this one left it: the package aside, and every version one document."""
    (tmp_path / "seed.md").write_text(BODY)
    run = RunDirectory(
        train_sim(tmp_path / "out", *quick(tmp_path / "out"), f"train.init_skill={tmp_path}/seed.md").path
    )
    write_package(run.package)
    assert not run.trains_package
    assert not find_damage(run)
    export(run, tmp_path / "to" / "house-codes")
    after = contents(tmp_path / "to" / "house-codes")
    assert after.pop(FILE) == FRONT.encode() + run.best_skill.read_bytes()
    assert after == FILES
    assert validate(tmp_path / "to" / "house-codes") == []
    assert set(by_file(blame_run(run))) == {FILE}


def test_a_package_without_front_matter_gets_one_when_it_is_exported(tmp_path: Path) -> None:
    package = write_package(tmp_path / "codes")
    (package / FILE).write_text(BODY)
    result = train_sim(tmp_path / "out", *quick(tmp_path / "out"), f"train.init_skill={package}")
    export(RunDirectory(result.path), tmp_path / "to" / "house-codes", description="Codes.")
    assert validate(tmp_path / "to" / "house-codes") == []
    after = contents(tmp_path / "to" / "house-codes")
    assert after["assets/logo.bin"] == FILES["assets/logo.bin"]
    assert after["references/codes.md"] != FILES["references/codes.md"]
    assert BODY.strip() in after[FILE].decode()


# Scripts


def by_script(skill: Skill, trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Proposes a script, and the rules besides, so that the gate accepts what is with it."""
    rules = "\n".join(f"- For {topic}, answer {code_for(topic, 0)}." for topic in TOPICS[:6])
    shared = {"op": "add", "trajectory_ids": [trajectories[0].id]}
    return [
        {**shared, "file": "scripts/new.py", "text": "# A comment\nprint(1)"},
        {**shared, "file": FILE, "text": rules},
    ]


@pytest.mark.parametrize("reviewed", [True, False])
def test_edits_to_scripts_wait_for_a_person_unless_that_was_allowed(reviewed: bool, tmp_path: Path) -> None:
    result = skillopt_api.train(
        str(SIM),
        analysts=[by_script],
        output_root=tmp_path / "out",
        num_epochs=1,
        lr_scheduler="constant",
        init_skill=write_package(tmp_path / "house-codes"),
        options={"rules": 6, "train": 12, "val": 12, "test": 6},
        package={"train": ["body", "references", "scripts"], "review_scripts": reviewed},
    )
    run = RunDirectory(result.path)
    assert result.summary["best"]["val"] == 1
    assert [c.reason.partition(";")[0] for c in Run(run).conflicts] == (
        ["it changes the script scripts/new.py (package.review_scripts)"] * reviewed
    )
    assert ("scripts/new.py" in contents(run.best_package)) is not reviewed
    if reviewed:
        assert "add in scripts/new.py: # A comment" in command("review", str(run.root)).stdout


# Edits


PACKAGE = Skill(BODY, FRONT, FILES)


def edit(op: str, file: str, **more: Any) -> Edit:
    return Edit.model_validate({"id": "e", "op": op, "file": file, "trajectory_ids": ["t1"], **more})


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
        (edit("add", "references/../x.md", text="a"), "cannot be a new file"),
        (edit("add", "/etc/cron.d/x", text="a"), "cannot be a new file"),
        (edit("add", "notes.md", text="a"), "a new file is named references/some-name.md"),
        (edit("add", "assets/x.md", text="a"), "cannot be a new file"),
        (edit("add", "references/Codes.md", text="a"), "cannot be a new file"),
        (edit("add", "scripts/new.py", text="a"), "cannot be a new file"),
        (edit("modify", "scripts/check.py", anchor="ok", text="no"), "is not trained (package.train)"),
        (edit("modify", "assets/logo.bin", anchor="A", text="B"), "is not trained (package.train)"),
        (edit("modify", "references/none.md", anchor="A", text="B"), "is not in the package"),
        (edit("modify", "references/codes.md", anchor="Answer with", text="B"), "anchor is not in the document"),
        (edit("modify", FILE, anchor="name: house-codes", text="name: x"), "anchor is not in the document"),
        (edit("add", "references/big.md", text="word " * 300), "past 200 tokens"),
        (edit("add", "references/about.md", text="word " * 198), "past 200 tokens"),
    ],
)
def test_an_edit_that_may_not_touch_its_file_is_skipped_with_the_reason(proposed: Edit, reason: str) -> None:
    limits = SizeLimits(train=("body", "references"), max_file_tokens=200)
    done = apply_edits(PACKAGE, [proposed], limits)
    assert done.skill is PACKAGE
    assert reason in done.skipped[0].reason


def test_the_package_has_a_limit_of_its_own() -> None:
    limits = SizeLimits(max_total_tokens=80)
    edits = [edit("add", f"references/n{n}.md", text="word " * 20) for n in range(3)]
    done = apply_edits(PACKAGE, edits, limits)
    assert 0 < len(done.applied) < 3
    assert "past 80 tokens" in done.skipped[0].reason


def test_anchors_are_found_in_their_own_file_alone_and_headings_of_scripts_are_comments() -> None:
    skill = Skill("- Same line.\n", FRONT, {"references/a.md": b"- Same line.\n", "scripts/s.py": b"# Part\nx = 1\n"})
    edits = [
        edit("modify", "references/a.md", anchor="- Same line.", text="- Other line."),
        edit("add", "scripts/s.py", section="Part", text="```\ny = 2"),
        edit("add", "references/new.md", section="Dates", text="- ISO."),
        edit("add", "references/new.md", section="Dates", text="- UTC."),
        edit("delete", FILE, anchor="- Same line."),
    ]
    done = apply_edits(skill, edits)
    assert not done.skipped
    assert done.skill.text == ""
    assert done.skill.front == FRONT
    assert dict(done.skill.others) == {
        "references/a.md": b"- Other line.\n",
        "scripts/s.py": b"# Part\nx = 1\n\n```\ny = 2\n",
        "references/new.md": b"## Dates\n\n- ISO.\n- UTC.\n",
    }
    assert not apply_edits(Skill("- Same line.\n"), edits[:1]).applied, "one document has no other file"


def test_a_file_that_edits_leave_without_text_is_removed_and_comes_back_as_it_was() -> None:
    skill = replace(PACKAGE, executable=frozenset({"scripts/check.py"}))
    text = skill.read("scripts/check.py") or ""
    gone = apply_edits(skill, [edit("delete", "scripts/check.py", anchor=text)]).skill
    assert "scripts/check.py" not in gone.others
    again = apply_edits(gone, [edit("add", "scripts/check.py", text=text)]).skill
    assert again.hash == skill.hash
