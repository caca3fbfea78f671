"""What the tests of check and lint share: skills of the simulated world, a git repository, the command."""

from __future__ import annotations

import io
import os
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from skillopt.cli import main
from skillopt.measure.batch import CheckOutcome
from skillopt.preflight.lint import lint
from skillopt.record.results import CheckResult
from skillopt.record.source import Source
from skillopt.sim.model import TOPICS, code_for
from support import SIM

HEAD = (
    "# Ticket codes\n\nAnswer with the codes alone, in the order asked for, separated by single spaces.\n\n## Rules\n\n"
)
NO_KEYS = {"OPENAI_API_KEY": ""}


def skill_text(known: int, wrong: int = 0, head: str = HEAD) -> str:
    """A skill that states this many of the twenty rules, of which the last ones are wrong."""
    codes = [code_for(topic, 0) for topic in TOPICS[:known]]
    codes = [code if n < known - wrong else "XX-11" for n, code in enumerate(codes)]
    return head + "".join(f"- For {topic}, answer {code}.\n" for topic, code in zip(TOPICS, codes, strict=False))


def write_skill(path: Path, known: int, wrong: int = 0, head: str = HEAD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(skill_text(known, wrong, head))
    return path


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def here(work: Path, *arguments: str, env: dict[str, str] | None = None) -> Done:
    """A command in this process: as in one of its own, but for the start."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(work), redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, env or {}):
        try:
            main(arguments)
        except SystemExit as end:
            return Done(int(end.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("main always exits")


def run_check(work: Path, *arguments: str, env: dict[str, str] | None = None) -> Done:
    """`skillopt check` in a folder, in the simulated world."""
    config = [] if "--config" in arguments or "--project" in arguments else ["--config", str(SIM)]
    return here(work, "check", *arguments, *config, f"env.output_root={work / 'out'}", env=env)


def git(work: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "t@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *arguments], cwd=work, capture_output=True, text=True, check=False, env={**os.environ, **who, **alone}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def repository(work: Path) -> Path:
    """Three skills on main: a file, a package and another file; skillopt.toml lists them."""
    work.mkdir(parents=True, exist_ok=True)
    git(work, "init", "-q", "-b", "main")
    write_skill(work / "skills" / "first.md", 12)
    write_skill(work / "skills" / "second" / "SKILL.md", 6, head=FRONT + HEAD)
    write_skill(work / "skills" / "third.md", 10)
    (work / "evals").mkdir()
    (work / "evals" / "config.yaml").write_text(SIM.read_text().replace("init_skill: ../../data/sim/seed_skill.md", ""))
    (work / "skillopt.toml").write_text(
        '[check]\nconfig = "evals/config.yaml"\n\n[skills."skills/first.md"]\nmargin = 0.02\n\n'
        '[skills."skills/second"]\n\n[skills."skills/third.md"]\n'
    )
    (work / ".gitignore").write_text("out/\n")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "three skills")
    return work


FRONT = "---\nname: second\ndescription: Codes of tickets. Use for ticket questions.\n---\n"


def hostile_outcome() -> CheckOutcome:
    """A verdict on a skill whose every text tries to be more than text."""
    bad = "<script>x</script>\n```\n::error::y\n]]>\x00\x1b[31m|`%0A"
    side = {"score": 0.0, "interval": (0.0, 0.1)}
    takes = {"rollouts": 1, "prompt_tokens": 1, "completion_tokens": 1, "usd": None, "turns": 1, "refused": 0}
    takes["telemetry"] = {"seconds": 0.1}
    row = {"score": 1.0, "output": bad, "feedback": bad}
    changed = {"item_id": bad, "type": bad, "change": "regressed", "difference": -1.0, "samples": 1, "input": bad}
    result: dict[str, Any] = {
        "verdict": "worse",
        **dict.fromkeys(("benchmark", "target", "split", "metric", "sure_by", "says"), bad),
        **dict.fromkeys(("margin", "alpha", "p"), 0.05),
        **{side: {"path": bad, "where": bad, "hash": bad, "tokens": 1} for side in ("skill", "base")},
        "noisy": False,
        "set_aside": {},
        "items_needed": None,
        "exit_code": 1,
        "same_text": False,
        "scores": {"base": side, "skill": side},
        "takes": {"base": takes, "skill": takes},
        "changed": [{**changed, "base": row, "skill": row}],
        "difference": -1.0,
        "difference_interval": (-1.0, -0.5),
        "rollouts": {"asked": 2, "full_pass": 2},
        "repeats": 0,
        "measured": 1,
        "items": 1,
        "telemetry": {"paid": {"calls": 2, "tokens": 3, "usd": None}},
    }
    before, after = (
        Source(path="a.md", where=bad, main="a.md", files={"a.md": text}) for text in (b"one\n", bad.encode())
    )
    return CheckOutcome(
        name=bad,
        target=bad,
        status="worse",
        code=1,
        sentence=bad,
        skill=after,
        base=before,
        linted=lint(after),
        result=CheckResult.model_validate(result),
    )
