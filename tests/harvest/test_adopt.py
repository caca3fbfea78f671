"""A proposal is put in place whole or not at all, and taken back."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillopt.errors import UserError
from skillopt_harvest import adopt as adoption
from skillopt_harvest.adopt import Proposal, ProposedFile, checksum, section_of, with_section, write_proposal

OLD = {"SKILL.md": "old skill\n", "references/a.md": "old a\n"}
NEW = {"SKILL.md": "new skill\n" + "x" * 60_000, "references/a.md": "new a\n", "references/b.md": "b\n"}


@pytest.fixture
def proposal(tmp_path: Path) -> Path:
    target = tmp_path / "skills" / "shop"
    for path, text in OLD.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text)
    folder = tmp_path / "proposal"
    for path, text in NEW.items():
        (folder / "new" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "new" / path).write_text(text)
    files = tuple(
        ProposedFile(path=path, before=checksum(target / path), after=checksum(folder / "new" / path)) for path in NEW
    )
    record = Proposal(run="r", target=str(target), files=files, verdict="v", outcome="better", evidence="e", cost_usd=0)
    write_proposal(folder, record, NEW, "page", "diff")
    return folder


def installed(proposal: Path) -> dict[str, str]:
    target = proposal.parent / "skills" / "shop"
    return {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}


def test_adopt_and_undo_give_the_same_bytes_back(proposal: Path) -> None:
    adoption.adopt(proposal)
    assert installed(proposal) == NEW
    adoption.undo(proposal)
    assert installed(proposal) == OLD


def test_an_adopt_that_was_killed_between_two_files_is_finished_or_taken_back(proposal: Path) -> None:
    target = proposal.parent / "skills" / "shop"
    first = min(path for path in NEW if path != "SKILL.md")
    adoption.adopt(proposal)
    adoption.undo(proposal)
    (target / first).parent.mkdir(exist_ok=True)
    (target / first).write_text(NEW[first])  # what a kill after the first file leaves, besides the backup
    (target / ".SKILL.md.0a1b2c3d.tmp").write_text("half")
    (target / ".mine.tmp").write_text("not ours")
    adoption.adopt(proposal)
    assert installed(proposal) == {**NEW, ".mine.tmp": "not ours"}
    (target / ".mine.tmp").unlink()
    (target / "SKILL.md").write_text(OLD["SKILL.md"])
    adoption.undo(proposal)
    assert installed(proposal) == OLD
    assert [path for path in target.rglob("*") if path.is_dir() and not any(path.iterdir())] == []


def test_a_replaced_file_keeps_its_mode(proposal: Path) -> None:
    path = proposal.parent / "skills" / "shop" / "SKILL.md"
    path.chmod(0o750)
    adoption.adopt(proposal)
    assert path.stat().st_mode & 0o777 == 0o750
    adoption.undo(proposal)
    assert path.stat().st_mode & 0o777 == 0o750


def test_a_skill_that_changed_meanwhile_is_not_overwritten(proposal: Path) -> None:
    skill = proposal.parent / "skills" / "shop" / "references" / "a.md"
    skill.write_text("edited by hand\n")
    with pytest.raises(UserError, match="has changed since the proposal"):
        adoption.adopt(proposal)
    assert installed(proposal) == {**OLD, "references/a.md": "edited by hand\n"}
    skill.write_text(OLD["references/a.md"])
    adoption.adopt(proposal)
    skill.write_text("edited after\n")
    with pytest.raises(UserError, match="has changed"):
        adoption.undo(proposal)
    assert installed(proposal)["references/a.md"] == "edited after\n"


def test_a_full_disk_leaves_the_installed_skill_as_it_was(proposal: Path) -> None:
    """A limit on the size of a file fails as a full disk does: at SKILL.md, after the references."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from skillopt.cli import main; main(['adopt', sys.argv[1]])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(proposal)], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "the installed skill is unchanged. Solve this, and try again" in done.stderr
    assert installed(proposal) == OLD
    assert not list((proposal.parent / "skills").rglob("*.tmp"))
    adoption.adopt(proposal)
    assert installed(proposal) == NEW


def test_of_two_adopts_at_once_one_waits_for_nobody_and_says_so(proposal: Path) -> None:
    handle = os.open(proposal.parent / "skills" / "shop", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another `skillopt adopt`"):
        adoption.adopt(proposal)
    os.close(handle)
    command = [sys.executable, "-m", "skillopt.cli", "adopt", str(proposal)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], errors
    assert installed(proposal) == NEW


def test_a_proposal_with_a_path_that_leads_out_or_another_text_is_refused(proposal: Path) -> None:
    (proposal / "new" / "SKILL.md").write_text("not what was proposed\n")
    with pytest.raises(UserError, match="has changed since it was proposed"):
        adoption.adopt(proposal)
    text = (proposal / "proposal.json").read_text().replace("references/b.md", "../../b.md")
    (proposal / "proposal.json").write_text(text)
    with pytest.raises(UserError):
        adoption.adopt(proposal)
    with pytest.raises(UserError, match="is not a proposal"):
        adoption.adopt(proposal.parent)
    assert installed(proposal) == OLD


def test_nothing_is_written_behind_a_link(proposal: Path) -> None:
    skill = proposal.parent / "skills" / "shop"
    (skill / "references").rename(proposal.parent / "elsewhere")
    (skill / "references").symlink_to(proposal.parent / "elsewhere")
    with pytest.raises(UserError, match="references: is a link"):
        adoption.adopt(proposal)
    assert [path.read_text() for path in (proposal.parent / "elsewhere").iterdir()] == [OLD["references/a.md"]]


def test_a_section_of_agents_md_is_replaced_and_all_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("# Ours\n\nKeep this.\n")
    first = with_section(file.read_text(), "- one\n")
    file.write_text(first)
    assert section_of(file) == "- one\n"
    second = with_section(f"{first}\nAfter.\n", "- two\n")
    assert second.startswith("# Ours\n\nKeep this.\n")
    assert second.endswith("\nAfter.\n")
    assert "- one" not in second
    assert with_section("", "x") == "<!-- skillopt:begin -->\nx\n<!-- skillopt:end -->\n"
