"""The docs are true: every command and program in README and the guide runs, references match the code, links lead."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support import REPO, TESTS, sim_server

COMMAND = re.compile(r"(?:\.venv/bin/)?(?:skillopt|make|pip|python) ")
FENCE = re.compile(
    r"(?:<!-- run with: (?P<extra>.*?) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
OUTPUT = re.compile(r"^<!-- output: (?P<pattern>.*) -->\n(?P<lines>(?: {4}.*\n)+)", re.MULTILINE)
"""Lines of the command above: those that match the pattern. `SKILLOPT_GOLDEN=write` writes them anew."""
FORMS = {
    r" \[[^\]]*\]…?": "",
    r"\bRUN(?![\w@])": "outputs/sim",
    r"--config C\b": "--config configs/sim/default.yaml",
    r" --open\b": "",
}
"""What stands for a reader's own run or config, and what is used in its place."""
SKIPPED = re.compile(
    r"…|RUN[_@]|\bDIR\b|NAME|sim serve|skillopt ui\b|skillopt_webui|bench/|data (?:prepare|generate) "
    r"|--choose|--write|configs/searchqa/default\.yaml"
)
"""Commands that need what only the reader has, serve until they are stopped, or fetch and measure for long;
test_guide.py runs those of SearchQA."""


def nav_pages() -> list[str]:
    found: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, str):
            found.append(node)
        for inner in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
            walk(inner)

    walk(yaml.safe_load((REPO / "mkdocs.yml").read_text())["nav"])
    return found


PAGES = ["README.md", *(f"docs/{page}" for page in nav_pages() if not page.startswith("reference/"))]
EXAMPLES = [str(path.relative_to(REPO)) for path in sorted((REPO / "examples").glob("*/README.md"))]


def blocks(page: str) -> list[tuple[str, str, str]]:
    """(kind, text, further arguments) of everything on a page that a reader would run, in order."""
    text = (REPO / page).read_text(encoding="utf-8")
    found = [(m.start(), m["kind"], m["text"], m["extra"] or "") for m in FENCE.finditer(text)]
    found += [(m.start(), "output", m["lines"], m["pattern"]) for m in OUTPUT.finditer(text)]
    outside = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    for block in re.finditer(r"(?:^ {4}.*\n?)+", outside, re.MULTILINE):
        for line in re.findall(r"^ {4}((?:.*\\\n)*.*)$", block[0], re.MULTILINE):
            if COMMAND.match(line.strip()) and not SKIPPED.search(with_own(line)):
                found.append((block.start(), "bash", line.replace("\n    ", "\n"), ""))
    return [
        (kind, with_own(text), extra) for _, kind, text, extra in sorted(found) if kind in {"bash", "python", "output"}
    ]


def with_own(text: str) -> str:
    """A form of a command as a command, where it speaks of a run or a config in general."""
    for form, own in FORMS.items():
        text = re.sub(form, own, text) if COMMAND.match(text.strip()) else text
    return text


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A working folder, and an environment in which every endpoint is the simulated one."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    tools.mkdir()
    for name in ("configs", "data"):
        (work / name).symlink_to(REPO / name)
    shutil.copytree(REPO / "examples", work / "examples")
    shutil.copy(REPO / "examples" / "own_tasks" / "tasks.jsonl", work)
    questions = [f"What is {n} and {n}?,{2 * n}" for n in range(24)]
    (work / "questions.csv").write_text("\n".join(["question,answer", *questions]) + "\n")
    (work / ".venv").mkdir()
    (work / ".venv" / "bin").symlink_to(tools)
    scripts = {
        "skillopt": f'eval "set -- \\"\\$@\\" $EXTRA"; exec {sys.executable} -m skillopt.cli "$@"',
        "python": f'eval "set -- \\"\\$@\\" $EXTRA"; exec {sys.executable} "$@"',
        "pip": f'PYTHONPATH={TESTS} exec {sys.executable} {__file__} "$@"',
        "make": f'exec /usr/bin/make -n -C {REPO} "$@"',
    }
    for name, script in scripts.items():
        (tools / name).write_text(f"#!/bin/bash\n{script}\n")
        (tools / name).chmod(0o755)
    with sim_server() as (_, url):
        paths = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(REPO / "src")}
        yield work, {**os.environ, **paths, "OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": url, "SIM": url}


def run(kind: str, text: str, extra: str, work: Path, environment: dict[str, str]) -> str:
    text = re.sub(r"http://127\.0\.0\.1:80\d\d/v1", environment["SIM"], text)
    program = ["bash", "-euo", "pipefail", "-c", text] if kind == "bash" else [sys.executable, "-c", text]
    quoted = shlex.join(shlex.split(extra))
    done = subprocess.run(
        program, cwd=work, env={**environment, "EXTRA": quoted}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def compare_output(page: str, lines: str, pattern: str, printed: str) -> None:
    """The lines that a page shows are those that its command prints."""
    expected = "".join(f"    {line}\n" for line in printed.splitlines() if re.search(pattern, line))
    if os.environ.get("SKILLOPT_GOLDEN") == "write":
        text = (REPO / page).read_text(encoding="utf-8")
        marker = f"<!-- output: {pattern} -->\n"
        (REPO / page).write_text(text.replace(marker + lines, marker + expected), encoding="utf-8")
    else:
        assert lines == expected, f"{page} shows other lines than the command prints; SKILLOPT_GOLDEN=write renews them"


@pytest.mark.docs
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("page", [page for page in [*PAGES, *EXAMPLES] if blocks(page)])
def test_what_a_page_tells_to_run_runs(page: str, place: tuple[Path, dict[str, str]]) -> None:
    work, environment = place
    found = blocks(page)
    told = "\n".join(text for _, text, _ in found)
    if "outputs/sim" in told.partition("configs/sim/default.yaml")[0]:
        run("bash", "skillopt train --config configs/sim/default.yaml train.num_epochs=2", "", work, environment)
    printed = ""
    for kind, text, extra in found:
        if kind == "output":
            compare_output(page, text, extra, printed)
        else:
            printed = run(kind, text, extra, work, environment)


def test_the_pages_that_must_have_commands_have_some() -> None:
    with_commands = {page for page in PAGES if blocks(page)}
    needed = ("start", "first_experiment", "python_api", "packages", "choosing", "extending")
    assert {"README.md", *(f"docs/{name}.md" for name in needed)} <= with_commands


@pytest.mark.docs
@pytest.mark.parametrize(
    "text", ["skillopt eval --config nowhere.yaml --skill x", "make nothing-like-this", "pip install '.[no]'"]
)
def test_a_command_that_does_not_work_would_be_found(text: str, place: tuple[Path, dict[str, str]]) -> None:
    with pytest.raises(AssertionError):
        run("bash", text, "", *place)


def test_the_references_are_those_of_the_code() -> None:
    check = [sys.executable, str(REPO / "scripts" / "make_reference.py"), "--check"]
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    done = subprocess.run(check, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.docs
def test_the_site_builds_without_a_warning_and_its_links_lead(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert "https://fonts." not in home
    for page in ("first_experiment", "reference/config", "reference/cli", "reference/api", "reference_index", "faq"):
        assert (tmp_path / "site" / f"{page}.html").exists()


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "examples/README.md", *EXAMPLES])
def test_links_outside_of_the_site_lead_somewhere(page: str) -> None:
    text = (REPO / page).read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not ((REPO / page).parent / link).exists()] == []


def test_the_changelog_has_this_version() -> None:
    import skillopt

    assert f"## {skillopt.__version__}" in (REPO / "CHANGELOG.md").read_text()


if __name__ == "__main__":  # as `pip` in the docs' commands: nothing is installed, but what is asked for must exist
    known = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra for word in sys.argv[1:] for found in re.findall(r"\[(.*?)\]", word) for extra in found.split(",")}
    sys.exit(f"no such extra: {asked - set(known)}" if asked - set(known) else 0)
