"""Task folders in the form of Harbor and SkillsBench: read, done in a workspace, judged by their own tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.tasks.base import SPLITS, ScorerError, check_splits
from skillopt.tasks.sandbox import SandboxResult
from skillopt.training.callers import make_callers
from skillopt_agents.folders import FoldersEnv, read_folders, reward_in
from support.workspaces import script

pytestmark = pytest.mark.sandbox

TEST = """#!/bin/bash
cd /app
if [ "$(cat sum.txt 2>/dev/null)" = "$(cat /tests/right.txt)" ]; then echo 1 > /logs/verifier/reward.txt
else echo "sum.txt is wrong"; echo 0 > /logs/verifier/reward.txt; fi
"""
DOCKERFILE = "FROM python:3.12-slim\n# the data\nWORKDIR /app\nCOPY . .\n"


def task(root: Path, name: str, numbers: str, *, dockerfile: str = DOCKERFILE, test: str = TEST) -> Path:
    folder = root / name
    for path, text in {
        "instruction.md": f"Write the sum of data/numbers.txt to sum.txt ({name}).\n",
        "task.toml": 'version = "1.0"\n[metadata]\ncategory = "sums"\n[verifier]\ntimeout_sec = 60.0\n',
        "environment/Dockerfile": dockerfile,
        "environment/data/numbers.txt": numbers,
        "environment/notes.txt": "One number a line.\n",
        "tests/test.sh": test,
        "tests/right.txt": f"{sum(map(int, numbers.split()))}\n",
        "solution/solve.sh": "true\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def tasks(root: Path, **how: Any) -> Path:
    for number in range(12):
        task(root / "tasks", f"sum-{number}", f"{number}\n4\n", **how)
    return root / "tasks"


def config_of(folder: Path, **env: Any) -> Config:
    tree = {"name": "folders", "data": str(folder), "output_root": str(folder.parent / "out"), **env}
    return Config.parse({"env": tree, "hardware": {"max_retries": 0}})


def rolled_out(config: Config) -> Any:
    import asyncio

    from skillopt.models import open_model
    from skillopt.models.bound import BoundChat
    from skillopt.record.journal import Journal
    from skillopt.skill import Skill

    env = FoldersEnv(config.env)
    check_splits(env)

    async def work() -> Any:
        callers, _, _ = make_callers(config, Journal(":memory:"), {"target": open_model("target", config)})
        chat = BoundChat(callers["target"], label="x", stage="rollout")
        return await env.run(env.items("train")[0], Skill("Add."), chat)

    return asyncio.run(work())


def test_a_task_folder_is_done_in_a_fresh_workspace_and_judged_by_its_own_tests(tmp_path: Path) -> None:
    folder = tasks(tmp_path)
    add = script(
        tmp_path / "add.sh", "ls | sort | tr '\\n' ' '; awk '{n += $1} END {print n}' data/numbers.txt > sum.txt\n"
    )
    episode = rolled_out(config_of(folder, command=str(add)))
    assert episode.score.hard == 1
    assert episode.output == "data notes.txt", "neither tests, solution nor Dockerfile are in the workspace"
    assert [change.path for change in episode.changes] == ["sum.txt"]
    nothing = script(tmp_path / "nothing.sh", "echo 5 > sum.txt\n")
    episode = rolled_out(config_of(folder, command=str(nothing)))
    assert (episode.score.hard, episode.score.feedback) == (0, "sum.txt is wrong")


def homes(config: Config) -> dict[str, str]:
    env = FoldersEnv(config.env)
    return {item.id: split for split in SPLITS for item in env.items(split)}


def test_a_folder_of_tasks_is_divided_as_the_config_says(tmp_path: Path) -> None:
    thirds = config_of(tasks(tmp_path), command="cat", split={"train": 1, "val": 1, "test": 1})
    assert Counter(homes(thirds).values()) == {"train": 4, "val": 4, "test": 4}


def test_a_task_that_is_added_or_edited_moves_no_other(tmp_path: Path) -> None:
    folder = tasks(tmp_path)
    before = homes(config_of(folder, command="cat"))
    for number in range(12, 20):
        task(folder, f"sum-{number}", f"{number}\n4\n")
        after = homes(config_of(folder, command="cat"))
        assert {name: after[name] for name in before} == before
        before = after
    (folder / "sum-3" / "instruction.md").write_text("Write the sum to sum.txt, please.\n")
    assert homes(config_of(folder, command="cat")) == before
    shares = Counter(before.values())
    assert (shares["train"], shares["val"], shares["test"]) == (10, 5, 5)


def test_tests_without_a_reward_are_judged_by_their_exit_code_and_broken_ones_set_the_item_aside(
    tmp_path: Path,
) -> None:
    agent = script(tmp_path / "agent.sh", "echo 1 > sum.txt\n")
    folder = tasks(tmp_path / "a", test="#!/bin/sh\ntest -f /app/sum.txt\n")
    assert rolled_out(config_of(folder, command=str(agent))).score.hard == 1
    folder = tasks(tmp_path / "b", test="#!/bin/sh\nexit 9\n")
    with pytest.raises(ScorerError, match="the check failed: exit code 9"):
        rolled_out(config_of(folder, command=str(agent)))


@pytest.mark.parametrize(
    "rest",
    [
        "WORKDIR /app\nCOPY . .\nRUN apt-get install -y jq\n",
        "WORKDIR /app\nCOPY data /srv/data\n",
        "WORKDIR /app\nCOPY . /srv\n",
        "WORKDIR /app/$HERE\nCOPY . .\n",
        "COPY . .\n",
    ],
)
def test_what_needs_docker_says_so_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without Docker; test_docker.py has it
    more = r"needs Docker, because environment/Dockerfile does more .*Docker cannot be used here"
    with pytest.raises(UserError, match=more):
        FoldersEnv(config_of(tasks(tmp_path, dockerfile=f"FROM x\n{rest}"), command="cat").env)


@pytest.mark.parametrize(
    ("rest", "files", "workdir"),
    [
        ("WORKDIR /work\nCOPY . /work\n", ["data/numbers.txt", "notes.txt"], "/work"),
        ("# nothing is copied\n\nWORKDIR /app\n", [], "/app"),
    ],
)
def test_a_dockerfile_that_only_copies_everything_needs_no_docker(
    tmp_path: Path, rest: str, files: list[str], workdir: str
) -> None:
    _, recipes = read_folders(config_of(tasks(tmp_path, dockerfile=f"FROM x\n{rest}")).env)
    assert (sorted(recipes["sum-0"].files), recipes["sum-0"].workdir) == (files, workdir)


@pytest.mark.parametrize(
    ("broken", "told"),
    [("task.toml", "has no task.toml"), ("tests/test.sh", "has no tests/test.sh"), ("instruction.md", "has no task;")],
)
def test_a_folder_that_is_no_task_is_refused(tmp_path: Path, broken: str, told: str) -> None:
    folder = tasks(tmp_path)
    for each in folder.iterdir():
        (each / broken).unlink()
    with pytest.raises(UserError, match=told):
        FoldersEnv(config_of(folder, command="cat").env)


def test_a_link_out_of_the_environment_is_refused(tmp_path: Path) -> None:
    folder = tasks(tmp_path)
    (folder / "sum-3" / "environment" / "data" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"sum-3: environment: 'data/passwd' is a link"):
        FoldersEnv(config_of(folder, command="cat").env)


@pytest.mark.parametrize(
    ("text", "reward"), [('{"reward": 0.5, "other": 1}', 0.5), ('{"a": 1, "b": 0}', 0.5), ("1", 1)]
)
def test_a_reward_may_be_json(tmp_path: Path, text: str, reward: float) -> None:
    (tmp_path / "reward.json").write_text(text)
    assert reward_in(tmp_path, SandboxResult(ok=True, reason="", stdout="", stderr="", files={})).soft == reward


def test_a_reward_that_is_no_share_sets_the_item_aside(tmp_path: Path) -> None:
    (tmp_path / "reward.txt").write_text("7")
    with pytest.raises(ScorerError, match="a number from 0 to 1"):
        reward_in(tmp_path, SandboxResult(ok=True, reason="", stdout="", stderr="", files={}))
