"""The skill for agents: valid, and every one of its commands does what it says, one by one, in its order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from skillopt.record.files import read_json
from skillopt.sim.env import SimWorld, make_splits
from skillopt.version import __version__
from skillopt_webui.alive import holder
from support import REPO
from support.cli_mind import reply_to_page

AGENT = REPO / "agent"
SKILL = AGENT / "skillopt" / "SKILL.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", SKILL.read_text(encoding="utf-8"), re.DOTALL)
STEPS = ["init", "cp", "doctor", "train", "letters", "answer", "report", "export"]
"""What each block is about, in the order of the skill."""


def sh(block: str, cwd: Path, *, run: str = "RUN", number: int = 1) -> str:
    """One block in a shell that remembers nothing of the last, as an agent runs it."""
    text = re.sub(r"\bRUN\b", run, block).replace(" 1 reply.json", f" {number} reply.json")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_tasks(folder: Path) -> None:
    world = SimWorld(rules=6, train=24, val=12, test=12)
    items = [item for split in make_splits(world).values() for item in split]
    rows = [json.dumps({"question": item.question, "answer": item.answers[0]}) for item in items]
    (folder / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "current_skill.md").write_text("# Ticket codes\n\nAnswer with the codes alone, separated by spaces.\n")


def test_the_skill_has_the_blocks_that_this_test_knows() -> None:
    assert len(BLOCKS) == len(STEPS)
    for block, word in zip(BLOCKS, STEPS, strict=True):
        assert word in block


@pytest.mark.slow
def test_every_step_of_the_skill_works_and_leads_to_a_better_skill(tmp_path: Path) -> None:
    make_tasks(tmp_path)
    init, copy, doctor, train, letters, answer, report, export = BLOCKS
    assert "Now: skillopt train" in sh(init, tmp_path)
    sh(copy, tmp_path)
    told = sh(doctor, tmp_path)
    assert "fail" not in told
    assert "optimizer model: handoff" in told
    assert "Run: " in sh(train, tmp_path)
    found = json.loads(sh(letters, tmp_path))
    try:
        answered = 0
        while found["letters"] or found["status"] == "running":
            for letter in found["letters"]:
                (tmp_path / "reply.json").write_text(reply_to_page(Path(tmp_path, letter["page"]).read_text()))
                assert "Accepted" in sh(answer, tmp_path, run=found["run"], number=letter["number"])
                answered += 1
            found = json.loads(sh(letters, tmp_path))
    finally:
        if pid := holder(tmp_path / found["run"]):
            os.kill(pid, 9)
    assert found["status"] == "finished"
    assert answered
    run = found["run"]
    told = sh(report, tmp_path, run=run)
    assert "ok  " in told
    assert (tmp_path / run / "report.md").is_file()
    summary = read_json(tmp_path / run / "summary.json")
    assert summary["best"]["test"] > summary["initial"]["test"]
    sh(export, tmp_path, run=run)
    assert validated(tmp_path / "my-skill")


def validated(folder: Path) -> bool:
    program = Path(sys.executable).parent / "agentskills"
    done = subprocess.run([program, "validate", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


def test_the_skill_is_valid_and_short() -> None:
    assert validated(AGENT / "skillopt")
    assert len(SKILL.read_text(encoding="utf-8").splitlines()) < 500


def test_what_the_plug_in_names_is_there() -> None:
    manifest = read_json(AGENT / ".claude-plugin" / "plugin.json")
    assert manifest["version"] == __version__
    assert [(AGENT / path / "SKILL.md").is_file() for path in manifest["skills"]] == [True]
    assert manifest["mcpServers"]["skillopt"]["args"] == ["mcp"]
    commands = sorted((AGENT / "commands").glob("*.md"))
    assert [path.stem for path in commands] == ["answer-letters", "train-skill"]
    for path in commands:
        _, front, body = path.read_text(encoding="utf-8").split("---\n", 2)
        assert set(yaml.safe_load(front)) == {"description", "argument-hint"}
        assert "Use the skill skillopt" in body


@pytest.mark.agents
def test_claude_code_takes_the_plug_in(tmp_path: Path) -> None:
    program = REPO / ".venv" / "agents" / "node_modules" / ".bin" / "claude"
    if not program.exists():
        pytest.skip("claude is not installed: scripts/install_agents.sh")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [program, "plugin", "validate", "."]
    done = subprocess.run(command, cwd=AGENT, capture_output=True, text=True, env=env, check=False)
    assert "Validation passed" in done.stdout, done.stdout + done.stderr
