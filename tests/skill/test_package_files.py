"""A skill as a set of files: what is read from a folder and refused, and what is written where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillopt.errors import UserError
from skillopt.record.package import read_skill
from skillopt.skill import FILE, Skill
from skillopt.skill.folder import LARGEST_FILE, MOST_FILES, path_problem, read_folder
from skillopt.skill.package import PackageError
from skillopt.training.initial import read_initial

FRONT = "---\nname: codes\ndescription: Codes.\n---\n"


def write(folder: Path, **more: bytes) -> Path:
    files = {"SKILL.md": f"{FRONT}# Codes\r\nRead references/rules.md.\n".encode(), "references/rules.md": b"- a\n"}
    for name, content in (files | more).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def on_disk(folder: Path) -> dict[str, tuple[bytes, bool]]:
    places = sorted(place for place in folder.rglob("*") if place.is_file())
    return {str(p.relative_to(folder)): (p.read_bytes(), os.access(p, os.X_OK)) for p in places}


def test_a_package_is_written_as_it_was_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "codes", **{"scripts/run.py": b"print(1)\n", "assets/x.bin": b"\xff\x00\r\n"})
    (folder / "scripts/run.py").chmod(0o755)
    (folder / ".env").write_text("the user's")
    skill = read_folder(folder)
    assert (skill.text, skill.front) == ("# Codes\r\nRead references/rules.md.\n", FRONT)
    assert list(skill.files) == ["SKILL.md", "assets/x.bin", "references/rules.md", "scripts/run.py"]
    assert skill.read("references/rules.md") == "- a\n"
    assert skill.read("assets/x.bin") is None
    (folder / ".env").unlink()
    assert on_disk(skill.write_to(tmp_path / "copy")) == on_disk(folder)
    assert read_folder(tmp_path / "copy").hash == skill.hash


def test_one_document_hashes_as_ever_and_every_file_of_a_package_counts() -> None:
    assert Skill("text\n").hash == "b9e68e1bea3e5b19ca6b2f98b73a54b73daafaa250484902e09982e07a12e733"
    one = Skill("a", FRONT, {"references/x.md": b"1", "scripts/y.py": b"2"})
    others = [
        Skill("b", one.front, one.others),
        Skill("a", FRONT.replace("Codes.", "Other."), one.others),
        Skill("a", FRONT, {**one.others, "references/x.md": b"3"}),
        Skill("a", FRONT, {"references/x.md": b"1"}),
        Skill("a", FRONT, one.others, frozenset({"scripts/y.py"})),
        Skill("a"),
    ]
    assert len({one.hash, *(skill.hash for skill in others)}) == 7


def test_a_changed_file_leaves_the_others_and_an_empty_one_is_removed() -> None:
    skill = Skill("a", FRONT, {"references/x.md": b"1", "assets/b": b"\xff"})
    assert skill.with_file("references/y.md", "new").files == {**skill.files, "references/y.md": b"new"}
    assert skill.with_file("references/x.md", " \n").files.keys() == {FILE, "assets/b"}
    assert skill.with_file(FILE, "b").files[FILE] == f"{FRONT}b".encode()
    assert skill.with_guidance("go").others == skill.others


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("out.md", lambda p: p.symlink_to("/etc/hostname"), "leads out of the package"),
        ("up.md", lambda p: p.symlink_to("../../else.md"), "link"),
        ("folder", lambda p: p.symlink_to("/etc"), "leads out of the package, or to a folder"),
        ("loop", lambda p: p.symlink_to("loop"), "link to nothing"),
        ("pipe", os.mkfifo, "not a regular file"),
        ("back\\slash.md", lambda p: p.write_text("x"), "backslash"),
        ("line\nbreak.md", lambda p: p.write_text("x"), "control character"),
        (os.fsdecode(b"\xff.md"), lambda p: p.write_text("x"), "not UTF-8"),
        ("setup\u202edm.sh", lambda p: p.write_text("x"), "invisible"),
        ("rules\u200b.md", lambda p: p.write_text("x"), "invisible"),
        ("rules\u3164.md", lambda p: p.write_text("x"), "invisible"),
        ("rules\x85.md", lambda p: p.write_text("x"), "control character"),
    ],
)
def test_what_is_no_plain_file_of_the_package_is_refused_by_name(
    name: str, make: object, message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "codes")
    assert callable(make)
    make(folder / name)
    with pytest.raises(UserError, match=message):
        read_skill(folder)


@pytest.mark.parametrize(
    ("one", "other"), [("A.md", "a.md"), ("e\u0301.md", "\xc9.md"), ("Notes/x.md", "notes/y.md"), ("data", "Data/x")]
)
def test_names_that_are_one_on_a_disk_that_ignores_case_are_refused(one: str, other: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "codes")
    for name in (one, other):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    if (folder / one).read_text() != one:
        pytest.skip("this disk ignores case")
    with pytest.raises(UserError, match="differ only in case"):
        read_skill(folder)
    skill = Skill("# Codes\n", FRONT, {one: b"1", other: b"2"})
    with pytest.raises(PackageError, match="differ only in case"):
        skill.write_to(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_or_a_folder_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "codes")
    with (folder / "big.bin").open("wb") as file:
        file.truncate(1_000_000_000)
    with pytest.raises(PackageError, match=rf"big\.bin: has 1,000 MB; .* {LARGEST_FILE // 1_000_000} MB"):
        read_folder(folder)
    (folder / "big.bin").unlink()
    for number in range(MOST_FILES):
        (folder / f"{number}.md").touch()
    with pytest.raises(PackageError, match="more than 2000 files"):
        read_folder(folder)


def test_a_folder_is_a_package_only_with_a_skill_md_which_needs_no_front_matter(tmp_path: Path) -> None:
    folder = write(tmp_path / "codes")
    (folder / FILE).write_text("# Codes\n")
    skill = read_initial(str(folder))
    assert (skill.text, skill.front, skill.is_package) == ("# Codes\n", "", True)
    (folder / FILE).unlink()
    with pytest.raises(UserError, match=r"has no SKILL\.md; give an existing file or package"):
        read_initial(str(folder))


def test_a_link_inside_of_the_package_is_read_as_the_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "codes")
    (folder / "references" / "same.md").symlink_to("rules.md")
    assert read_folder(folder).read("references/same.md") == "- a\n"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "", ".", ".git/hooks/x", "a/.env", "x" * 300])
def test_nothing_is_written_outside_whatever_a_file_is_called(path: str, tmp_path: Path) -> None:
    assert path_problem(path)
    with pytest.raises(PackageError):
        Skill("a", FRONT, {path: b"x"}).write_to(tmp_path / "to" / "codes")
    assert not (tmp_path / "to").exists()


def test_a_package_never_replaces_or_follows_what_is_there(tmp_path: Path) -> None:
    skill = Skill("a", FRONT, {"references/x.md": b"1"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "SKILL.md").symlink_to(tmp_path / "victim")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for place in ("full", "link"):
        with pytest.raises(PackageError, match="exists already"):
            skill.write_to(tmp_path / place)
    assert not (tmp_path / "victim").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_document_without_front_matter_gets_the_one_that_is_given(tmp_path: Path) -> None:
    Skill("text").write_to(tmp_path / "a", FRONT)
    assert (tmp_path / "a" / FILE).read_text() == f"{FRONT}text"
    Skill("text", "---\nname: own\n---\n").write_to(tmp_path / "b", FRONT)
    assert (tmp_path / "b" / FILE).read_text() == "---\nname: own\n---\ntext"
