"""`skillopt lint`: what is wrong with a skill can be said without running it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.config import Config
from skillopt.preflight.lint import Finding, lint, parse_trouble
from skillopt.record.source import Source, on_disk
from support import REPO, ends_within
from support.checking import here

FRONT = "---\nname: codes\ndescription: Codes of tickets. Use for ticket questions.\n---\n"
BODY = "# Codes\n\nAnswer with the codes alone.\n"


def package(tmp_path: Path, body: str = BODY, front: str = FRONT, **files: str) -> Path:
    folder = tmp_path / "codes"
    folder.mkdir()
    (folder / "SKILL.md").write_text(front + body)
    for name, text in files.items():
        place = folder / name.replace("__", "/").replace("_dot_", ".")
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return folder


def found(folder: Path) -> list[Finding]:
    return list(lint(on_disk(folder)).findings)


def only(folder: Path) -> Finding:
    (finding,) = found(folder)
    return finding


def test_a_sound_package_has_nothing_to_say(tmp_path: Path) -> None:
    body = f"{BODY}\nRun `scripts/a.py`, then read [the dates](references/dates.md#long-dates).\n"
    files = {"scripts__a_dot_py": "print(1)\n", "references__dates_dot_md": "# Long dates\n"}
    assert found(package(tmp_path, body, **files)) == []


@pytest.mark.parametrize(
    ("body", "rule", "level", "line", "says"),
    [
        (f"{BODY}See [dates](references/dates.md).\n", "link", "error", 8, "'references/dates.md' does not exist"),
        (f"{BODY}Run `python scripts/gone.py --all`.\n", "link", "error", 8, "'scripts/gone.py' does not exist"),
        (f"{BODY}```bash\nbash scripts/gone.sh\n```\n", "link", "error", 9, "'scripts/gone.sh' does not exist"),
        (f"{BODY}See [it](../other/SKILL.md).\n", "link", "warning", 8, "leads out of the package"),
        (f"{BODY}- Write it in capitals.\n- Write it in capitals!\n", "duplicate", "warning", 9, "line 8"),
        (
            f"{BODY}- Write codes in capitals.\n- Never write codes in capitals.\n",
            "contradiction",
            "warning",
            9,
            "line 8",
        ),
        (f"{BODY}- Give at most 3 codes.\n- Give at most 5 codes.\n", "contradiction", "warning", 9, "line 8"),
        (f"{BODY}The latest version is 3.2.\n", "time", "warning", 8, "latest version"),
        (f"{BODY}Read /home/ann/codes.csv first.\n", "path", "warning", 8, "/home/ann/codes.csv"),
        (f"{BODY}Read C:\\Users\\ann\\codes.csv first.\n", "path", "warning", 8, "C:\\Users"),
        (f"{BODY}```python\nprint(1)\n", "fence", "error", 8, "never closed"),
        ("", "empty", "error", 1, "no text"),
    ],
)
def test_each_rule_names_the_line(tmp_path: Path, body: str, rule: str, level: str, line: int, says: str) -> None:
    finding = only(package(tmp_path, body))
    assert (finding.rule, finding.level, finding.line) == (rule, level, line)
    assert says in finding.says
    assert finding.file.endswith("codes/SKILL.md")


@pytest.mark.parametrize(
    ("front", "says"),
    [
        ("", "no front matter"),
        ("---\nname: other\ndescription: x\n---\n", "folder must be called"),
        ("---\nname: codes\ndescription: ''\n---\n", "description is empty"),
        ("---\nname: codes\ndescription: x\ncolour: red\n---\n", "unknown field 'colour'"),
        ("---\nname: [codes\n---\n", "not readable as YAML"),
    ],
)
def test_the_form_of_the_front_matter(tmp_path: Path, front: str, says: str) -> None:
    finding = only(package(tmp_path, front=front))
    assert (finding.rule, finding.level) == ("form", "error")
    assert says in finding.says


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", "x = 1\ndef f(:\n", 2),
        ("run", "#!/usr/bin/env python3\nx = = 1\n", 2),
        ("a.json", '{\n"a": 1,\n}\n', 3),
        ("a.toml", "a = 1\nb = \n", 2),
        ("a.yaml", "a: [1\nb: 2\n", 2),
    ],
)
def test_a_script_that_does_not_parse(name: str, text: str, line: int) -> None:
    trouble = parse_trouble(name, text)
    assert trouble is not None
    assert trouble.line == line


def test_scripts_are_parsed_and_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    for name, text in {
        "a.py": f"open({str(trap)!r}, 'w')\n",
        "a.sh": f"touch {trap}\n$(touch {trap})\n: ${{x:=$(touch {trap})}}\n",
        "b.yaml": f"!!python/object/apply:os.system ['touch {trap}']\n",
    }.items():
        parse_trouble(name, text)
    assert not trap.exists()


def test_a_secret_is_found_in_any_file_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_TOKEN", "a-very-private-word")
    likely = "sk-" + "a1B2" * 8
    folder = package(tmp_path, f"{BODY}\nRead `scripts/x.py`.\n", scripts__x_dot_py=f'KEY = "{likely}"\n')
    (folder / "notes.txt").write_text("see a-very-private-word\n")
    done = here(tmp_path, "lint", "codes")
    assert done.returncode == 1
    assert done.stdout.count(" secret: ") == 2
    assert likely not in done.stdout
    assert "private-word" not in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "-" * 100_000,
        "eyJaaaaaaaa-" * 20_000,
        "-a" * 50_000,
        "--" + "token" * 20_000,
        "A_" * 50_000,
        "`" + "-" * 100_000,
    ],
)
def test_no_long_line_holds_up_the_search_for_keys(tmp_path: Path, line: str) -> None:
    with ends_within(120):
        found(package(tmp_path, f"{BODY}\n{line}\n"))
        Config.parse({"notes": {"schedule": line}})


def test_a_placeholder_is_no_secret(tmp_path: Path) -> None:
    assert found(package(tmp_path, f"{BODY}Set OPENAI_API_KEY=sk-your-key-comes-here-please.\n")) == []


def test_who_pays_for_how_many_tokens(tmp_path: Path) -> None:
    body = f"{BODY}Read references/dates.md.\n"
    folder = package(tmp_path, body, references__dates_dot_md="Dates are long. " * 50)
    tokens = lint(on_disk(folder)).tokens
    assert 5 < tokens.listed < 20
    assert 10 < tokens.loaded < 30
    assert tokens.on_demand > 150


def test_exit_codes_json_and_annotations(tmp_path: Path) -> None:
    package(tmp_path, f"{BODY}The latest version is 3.2.\n")
    assert here(tmp_path, "lint", "codes").returncode == 0
    assert here(tmp_path, "lint", "codes", "--strict").returncode == 1
    assert here(tmp_path, "lint", "nowhere").returncode == 2
    rows = json.loads(here(tmp_path, "lint", "codes", "--json").stdout)
    assert rows["codes"]["findings"][0]["rule"] == "time"
    shown = here(tmp_path, "lint", "codes", "--github").stdout
    assert shown.splitlines()[-1].startswith("::warning file=")
    gone = here(tmp_path, "lint", "codes", "--out", "found")
    assert (gone.returncode, "use --json" in gone.stderr) == (2, True)


def test_a_plain_file_needs_no_front_matter(tmp_path: Path) -> None:
    (tmp_path / "skill.md").write_text(f"{BODY}See [here](near.md) and [there](gone.md).\n")
    (tmp_path / "near.md").write_text("x\n")
    assert only(tmp_path / "skill.md").says == "'gone.md' does not exist"


@pytest.mark.parametrize("path", sorted((REPO / "data").glob("*/*skill*.md")), ids=lambda path: path.parent.name)
def test_our_own_skills_have_no_error(path: Path) -> None:
    assert [f for f in lint(on_disk(path)).findings if f.level == "error"] == []


@given(st.text(max_size=400), st.text(max_size=200))
def test_any_text_is_linted_without_a_fault(body: str, front: str) -> None:
    text = f"---\n{front}\n---\n{body}".encode("utf-8", "replace")
    source = Source(
        path="x/SKILL.md", where="here", main="SKILL.md", files={"SKILL.md": text, "a.py": text}, folder="x"
    )
    for finding in lint(source).findings:
        assert finding.line >= 1
