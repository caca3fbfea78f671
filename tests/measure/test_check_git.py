"""A repository of three skills and a branch that breaks one and improves another: what CI gets to see."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import UserError
from skillopt.record.files import read_json
from skillopt.record.git import Repository
from skillopt.record.source import in_commit
from support.checking import FRONT, HEAD, Done, git, here, repository, run_check, write_skill


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    """On a branch the first skill has three wrong rules, the second knows twice as many."""
    work = repository(tmp_path / "repo")
    git(work, "checkout", "-q", "-b", "change")
    write_skill(work / "skills" / "first.md", 12, wrong=4)
    write_skill(work / "skills" / "second" / "SKILL.md", 14, head=FRONT + HEAD)
    git(work, "commit", "-q", "-am", "change two skills")
    return work


def checked(work: Path, *arguments: str) -> Done:
    return run_check(work, "--project", "skillopt.toml", "--out", "out/found", *arguments)


def results(work: Path) -> dict[str, dict[str, Any]]:
    return {row["skill"]: row for row in read_json(work / "out" / "found" / "check.json")}


def test_what_changed_is_checked_and_nothing_else(branch: Path) -> None:
    done = checked(branch, "--base", "main")
    assert done.returncode == 1, done.stdout + done.stderr
    found = results(branch)
    assert {name: row["status"] for name, row in found.items()} == {
        "skills/first.md": "worse",
        "skills/second": "better",
        "skills/third.md": "unchanged",
    }
    assert found["skills/third.md"]["result"] is None
    assert len(list(branch.glob("out/checks/sim/*/check.json"))) == 2
    assert found["skills/first.md"]["result"]["margin"] == 0.02
    assert found["skills/second"]["result"]["margin"] == 0.05
    commit = git(branch, "rev-parse", "--short=7", "main")
    assert found["skills/first.md"]["result"]["base"]["where"] == f"main ({commit})"


def test_the_summary_has_the_table_and_the_items_that_changed(branch: Path) -> None:
    checked(branch, "--base", "main")
    page = (branch / "out" / "found" / "summary.md").read_text()
    assert page.startswith("# Skill check: 1 worse, 1 better, 1 unchanged\n")
    rows = [line for line in page.splitlines() if line.startswith("| skills/")]
    assert [re.search(r"[✓✗] [a-z ]+", row)[0].strip() for row in rows] == ["✗ worse", "✓ better", "✓ unchanged"]  # type: ignore[index]
    lost = [row for row in results(branch)["skills/first.md"]["result"]["changed"] if row["change"] == "regressed"]
    assert lost
    for row in lost:
        assert f"<summary>regressed: {row['item_id']} (1.00 → 0.00)</summary>" in page
        assert row["skill"]["output"] in page


def test_junit_fails_for_the_broken_skill_alone(branch: Path) -> None:
    checked(branch, "--base", "main")
    suites = ET.parse(branch / "out" / "found" / "junit.xml").getroot().findall("testsuite")
    assert [int(suite.attrib["failures"]) > 0 for suite in suites] == [True, False, False]
    for suite in suites:
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
    first = suites[0].find("testcase")
    assert first is not None
    assert first.attrib["name"] == "verdict"
    assert suites[2].find("testcase/skipped") is not None


def test_annotations_are_on_the_lines_that_changed(branch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(branch / "out" / "step.md"))
    (branch / "out").mkdir()
    done = checked(branch, "--base", "main", "--github")
    token = re.match(r"::stop-commands::(\w{32})\n", done.stdout)
    assert token
    shown, _, commands = done.stdout.partition(f"::{token[1]}::\n")
    assert shown.count("\n::") == 0
    lines = commands.splitlines()
    text = (branch / "skills" / "first.md").read_text().splitlines()
    wrong = [number for number, line in enumerate(text, 1) if "XX-11" in line]
    assert lines[0].startswith(f"::error file=skills/first.md,line={wrong[0]},title=skillopt worse::")
    assert len(lines) == 1
    assert "# Skill check" in (branch / "out" / "step.md").read_text()


def test_the_skills_of_another_commit_are_checked_without_a_checkout(branch: Path) -> None:
    """On main, with the branch as --head: config and list are those of main, whatever the branch says."""
    (branch / "skillopt.toml").write_text('[skills."skills/first.md"]\nconfig = "evil.yaml"\n')
    (branch / "evals" / "config.yaml").write_text("env: {name: 'evil.py:Env'}\n")
    (branch / "evil.py").write_text("raise SystemExit('executed')\n")
    git(branch, "add", "-A")
    git(branch, "commit", "-q", "-m", "a hostile config")
    git(branch, "checkout", "-q", "main")
    done = checked(branch, "--base", "main", "--head", "change")
    assert done.returncode == 1, done.stdout + done.stderr
    assert [row["status"] for row in results(branch).values()] == ["worse", "better", "unchanged"]
    assert git(branch, "status", "--porcelain") == ""


def test_a_new_skill_is_compared_with_none_and_a_removed_one_is_not_run(branch: Path) -> None:
    git(branch, "rm", "-q", "skills/third.md")
    git(branch, "mv", "skills/first.md", "skills/fourth.md")
    git(branch, "commit", "-q", "-m", "rename one, remove one")
    listed = (branch / "skillopt.toml").read_text()
    (branch / "skillopt.toml").write_text(listed.replace("first.md", "fourth.md"))
    done = checked(branch, "--base", "main", "--head", "change")
    found = results(branch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["skills/fourth.md"]["status"] == "better"
    assert "it is not in main" in found["skills/fourth.md"]["result"]["base"]["where"]
    assert found["skills/third.md"]["status"] == "removed"


def test_a_package_of_which_only_another_file_changed_is_linted_and_measured(branch: Path) -> None:
    git(branch, "checkout", "-q", "main")
    (branch / "skills" / "second" / "scripts").mkdir()
    (branch / "skills" / "second" / "scripts" / "x.py").write_text("def f(:\n")
    done = checked(branch, "--base", "main")
    assert done.returncode == 0
    assert "NO WORSE  skills/second" in done.stdout
    assert "UNCHANGED  skills/first.md" in done.stdout
    assert "does not parse as Python" in (branch / "out" / "found" / "summary.md").read_text()
    linted = here(branch, "lint", "--base", "main")
    assert linted.returncode == 1
    assert "skills/second/scripts/x.py:1 script" in linted.stdout
    assert "first.md" not in linted.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("skills/first.md", "--base", "no-such-branch"), "has no such commit"),
        (("skills/first.md", "--base=--upload-pack=x"), "has no such commit"),
        (("../outside.md", "--base", "main"), "outside of the repository"),
        (("skills/first.md", "--head", "nowhere"), "has no such commit"),
        (("--base", "skills/first.md"), "is one skill, but skillopt.toml lists 3"),
    ],
)
def test_a_base_that_cannot_be_had_is_said(branch: Path, arguments: tuple[str, ...], message: str) -> None:
    write_skill(branch.parent / "outside.md", 3)
    done = checked(branch, *arguments)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert not list(branch.glob("out/checks/**/check.json"))


def test_links_in_a_commit_are_not_followed(branch: Path) -> None:
    (branch / "skills" / "second" / "passwd.md").symlink_to("/etc/passwd")
    git(branch, "add", "-A")
    git(branch, "commit", "-q", "-m", "a link")
    place = Repository.around(branch)
    found = in_commit(place, place.commit("change"), "skills/second", "change")
    assert found is not None
    assert set(found.files) == {"SKILL.md"}


def test_git_runs_nothing_of_the_repository(branch: Path, tmp_path: Path) -> None:
    """A filter that a repository's attributes ask for is not run for what is read from a commit."""
    trap = tmp_path / "ran"
    git(branch, "config", "filter.trap.smudge", f"touch {trap}; cat")
    git(branch, "config", "diff.trap.textconv", f"touch {trap}; cat")
    (branch / ".gitattributes").write_text("*.md filter=trap diff=trap\n")
    place = Repository.around(branch)
    assert place.files(place.commit("main"), "skills/first.md")
    assert not trap.exists()
    with pytest.raises(UserError, match="not in a git repository"):
        Repository.around(tmp_path)
