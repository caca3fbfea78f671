"""The GitHub Action's steps, run as a runner would: checkout, install from the wheel, check, summary."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillopt.record.files import read_json
from support import REPO
from support.checking import FRONT, HEAD, git, repository, write_skill

ACTION = yaml.safe_load((REPO / "action.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(build, cwd=REPO, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("*.whl")
    return file


class Runner:
    """What GitHub's runner does for a composite action: fill in expressions, run each step, collect its outputs."""

    def __init__(self, work: Path, temp: Path, event: dict[str, str], wheel: Path, **inputs: str) -> None:
        self.work, self.temp = work, temp
        temp.mkdir(parents=True, exist_ok=True)
        defaults = {name: spec["default"] for name, spec in ACTION["inputs"].items()}
        known = {f"inputs.{k}": v for k, v in {**defaults, "install": str(wheel), **inputs}.items()}
        self.values = {**known, "runner.temp": str(temp), "github.run_attempt": "1", **event}
        self.outputs: dict[str, str] = {}

    def fill(self, text: str) -> str:
        """Names, and `a || b`; an expression that this does not know fails the test."""

        def value(match: re.Match[str]) -> str:
            found = [self.values.get(name, "") for name in match[1].split(" || ")]
            assert any(name in self.values or name.startswith("github.event.") for name in match[1].split(" || ")), (
                match[0]
            )
            return next((one for one in found if one), "")

        return EXPRESSION.sub(value, text)

    def run(self, **environment: str) -> tuple[int, str]:
        """The exit code of the first step that fails, else 0, and everything that was printed."""
        printed = ""
        for step in ACTION["runs"]["steps"]:
            if "uses" in step:  # python is here, and the cache is a folder of this machine
                assert step["uses"].split("@")[0] in {"actions/setup-python", "actions/cache"}
                continue
            done = self._step(step, environment)
            printed += done.stdout + done.stderr
            if done.returncode:
                return done.returncode, printed
        return 0, printed

    def _step(self, step: dict[str, Any], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression in a script lets a pull request write the script"
        files = {name: self.temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        own = {name: self.fill(value) for name, value in step.get("env", {}).items()}
        bare = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "OPENAI_API_KEY"}}
        paths = {
            "RUNNER_TEMP": str(self.temp),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            **{k: str(v) for k, v in files.items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.work,
            env={**bare, **paths, **own, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if step["name"] == "Install":  # the wheel's dependencies are this interpreter's, so that nothing is fetched
            venv = self.temp / "skillopt-venv"
            site = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
            (site / "dependencies.pth").write_text(
                "\n".join(path for path in sys.path if "site-packages" in path) + "\n"
            )
        if files["GITHUB_OUTPUT"].exists():
            self.outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return done


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A clone, as actions/checkout with fetch-depth 0 leaves it, of a repository with a pull request."""
    origin = repository(tmp_path_factory.mktemp("origin") / "repo")
    base = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "-q", "-b", "change")
    write_skill(origin / "skills" / "first.md", 12, wrong=4)
    write_skill(origin / "skills" / "second" / "SKILL.md", 14, head=FRONT + HEAD)
    (origin / "evals" / "config.yaml").write_text("env: {name: 'evil.py:Env'}\n")
    (origin / "evil.py").write_text("raise SystemExit('executed')\n")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "a pull request, with a hostile config")
    head = git(origin, "rev-parse", "HEAD")
    work = tmp_path_factory.mktemp("runner") / "work"
    git(work.parent, "clone", "-q", str(origin), str(work))
    git(work, "checkout", "-q", "change")
    return work, {
        "github.event.pull_request.base.sha": base,
        "github.event.pull_request.head.sha": head,
        "github.sha": head,
    }


def clean(work: Path) -> None:
    for line in git(work, "worktree", "list", "--porcelain").splitlines():
        if line.startswith("worktree ") and Path(line[9:]) != work:
            git(work, "worktree", "remove", "--force", line[9:])


def test_the_steps_check_what_changed_and_leave_the_summary(
    checkout: tuple[Path, dict[str, str]], wheel: Path, tmp_path: Path
) -> None:
    work, event = checkout
    runner = Runner(work, tmp_path / "temp", event, wheel)
    code, printed = runner.run()
    clean(work)
    asked = [
        str(tmp_path / "temp" / "skillopt-venv" / "bin" / "python"),
        "-c",
        "import skillopt; print(skillopt.__file__)",
    ]
    used = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=tmp_path, env={})
    assert used.stdout.startswith(str(tmp_path / "temp")), "the wheel is used, not the repository"
    assert code == 1, printed
    assert runner.outputs["code"] == "1"
    found = Path(runner.outputs["folder"])
    assert {path.name for path in found.iterdir()} == {"summary.md", "junit.xml", "check.json"}
    assert [row["status"] for row in read_json(found / "check.json")] == ["worse", "better", "unchanged"]
    assert "# Skill check: 1 worse, 1 better, 1 unchanged" in (tmp_path / "temp" / "github_step_summary").read_text()
    assert "::error file=skills/first.md,line=" in printed
    assert "executed" not in printed
    assert (tmp_path / "temp" / "skillopt-journal" / "checks" / "journal.sqlite").exists()


def test_a_fork_without_keys_is_linted_and_told_so(
    checkout: tuple[Path, dict[str, str]], wheel: Path, tmp_path: Path
) -> None:
    work, event = checkout
    clone = tmp_path / "clone"
    shutil.copytree(work, clone, symlinks=True)
    git(clone, "checkout", "-q", event["github.event.pull_request.base.sha"])
    config = (clone / "evals" / "config.yaml").read_text()
    (clone / "evals" / "config.yaml").write_text(
        config.replace("target_model: sim:world", "target_model: openai:gpt-4o-mini")
    )
    git(clone, "commit", "-q", "-am", "a target with a key")
    base = git(clone, "rev-parse", "HEAD")
    write_skill(clone / "skills" / "first.md", 12, wrong=1)
    git(clone, "commit", "-q", "-am", "a fork's change")
    head = git(clone, "rev-parse", "HEAD")
    own = {"github.event.pull_request.base.sha": base, "github.event.pull_request.head.sha": head, "github.sha": head}
    runner = Runner(clone, tmp_path / "temp", own, wheel)
    code, printed = runner.run()
    assert code == 0, printed
    page = (tmp_path / "temp" / "github_step_summary").read_text()
    assert "Not measured, only linted" in page


def test_a_repository_without_a_project_on_its_base_passes_with_a_notice(
    checkout: tuple[Path, dict[str, str]], wheel: Path, tmp_path: Path
) -> None:
    work, event = checkout
    runner = Runner(work, tmp_path / "temp", event, wheel, project="other.toml")
    code, printed = runner.run()
    clean(work)
    assert code == 0, printed
    assert "::notice" in printed
