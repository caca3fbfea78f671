"""Task folders that need Docker, with a stand-in for the `docker` command (docker_stand_in.py)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, ChatRequest, RefusedError, TransientError
from skillopt.models.bound import BoundChat
from skillopt.record.journal import Journal
from skillopt.skill import Skill
from skillopt.tasks.base import Episode, ScorerError, check_splits
from skillopt.training.callers import make_callers
from skillopt_agents.folders import FoldersEnv
from support import TESTS

pytestmark = pytest.mark.slow

TEST = """#!/bin/sh
if [ "$(cat /app/sum.txt 2>/dev/null)" = "$(cat /tests/right.txt)" ]; then echo 1 > /logs/verifier/reward.txt
else echo "sum.txt is wrong"; echo 0 > /logs/verifier/reward.txt; fi
"""
NEEDS = "FROM python:3.12-slim\nRUN apt-get install -y jq\nWORKDIR /app\nCOPY . .\n"
TOML = '[metadata]\ncategory = "sums"\n[environment]\ncpus = 2\nmemory_mb = 512\n'
ADD = "awk '{n += $1} END {print n}' numbers.txt > sum.txt"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in on PATH; gives the folder of its state."""
    state, program = tmp_path / "docker", tmp_path / "bin" / "docker"
    for folder in (state / "images", state / "containers", program.parent):
        folder.mkdir(parents=True)
    stand_in = TESTS / "support" / "docker_stand_in.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{stand_in}" "{state}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return state


def tasks(root: Path, *, dockerfile: str = NEEDS, test: str = TEST, toml: str = TOML) -> Path:
    for number in range(12):
        folder = root / "tasks" / f"sum-{number}"
        for path, text in {
            "instruction.md": f"Write the sum of numbers.txt to sum.txt ({number}).\n",
            "task.toml": toml,
            "environment/Dockerfile": dockerfile,
            "environment/numbers.txt": f"{number}\n4\n",
            "tests/test.sh": test,
            "tests/right.txt": f"{number + 4}\n",
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    return root / "tasks"


def config_of(folder: Path, **env: Any) -> Config:
    tree = {"name": "folders", "data": str(folder), "agent": "shell", "output_root": str(folder.parent / "out"), **env}
    return Config.parse({"env": tree, "hardware": {"max_retries": 0}})


class Worker:
    """A target that gives these commands, one after the other."""

    name = endpoint = "scripted"
    deterministic = True

    def __init__(self, *commands: str) -> None:
        self._commands = commands
        self.asked = 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        done = sum(message["role"] == "tool" for message in request.messages)
        if done >= len(self._commands):
            return ChatReply(text="Done.")
        function = {"name": "run", "arguments": json.dumps({"command": self._commands[done]})}
        return ChatReply(text="", tool_calls=({"id": "c", "type": "function", "function": function},))

    async def close(self) -> None:
        return


def rolled_out(
    config: Config, worker: Worker, *, skill: Skill | None = None, journal: Journal | None = None
) -> Episode:
    env = FoldersEnv(config.env)
    check_splits(env)

    async def work() -> Episode:
        callers, _, _ = make_callers(config, journal or Journal(":memory:"), {"target": worker})
        chat = BoundChat(callers["target"], label="x", stage="rollout")
        return await env.run(env.items("train")[0], skill or Skill("Add."), chat)

    return asyncio.run(work())


def calls(state: Path, verb: str) -> list[list[str]]:
    lines = map(json.loads, (state / "calls.jsonl").read_text().splitlines())
    return [words for words in lines if words[0] == verb]


def containers(state: Path) -> list[str]:
    return [folder.name for folder in (state / "containers").iterdir()]


def test_a_task_that_needs_docker_is_solved_in_a_container_with_limits_and_without_network(
    docker: Path, tmp_path: Path
) -> None:
    config = config_of(tasks(tmp_path))
    episode = rolled_out(config, Worker("ls /tests /logs; ls", f"{ADD}; mkdir /logs; echo 5 > /logs/mine"))
    assert episode.score
    assert episode.score.hard == 1
    first = str(next(message["content"] for message in episode.messages if message["role"] == "tool"))
    assert "numbers.txt" in first
    assert "test.sh" not in first, "the tests come after the agent has ended"
    changes = {change.path: (change.kind, change.shown) for change in episode.changes}
    assert changes.keys() == {"sum.txt", "/logs/mine"}
    assert changes["sum.txt"][1].strip().isdigit()
    (run,) = calls(docker, "run")
    given = dict(itertools.pairwise(run))
    assert (given["--network"], given["--cpus"], given["--memory"]) == ("none", "2", "512m")
    assert "--rm" in run
    assert 900 < float(run[-1]) < 3600, "if this process is killed, the container ends by itself"
    assert given["--name"].startswith("skillopt-")
    assert containers(docker) == []


def test_a_task_that_is_not_solved_scores_zero_with_what_the_tests_say(docker: Path, tmp_path: Path) -> None:
    config = config_of(tasks(tmp_path))
    for commands in (
        ["echo 5000 > sum.txt"],
        ["mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt"],
        ["rm -r /app"],
    ):
        episode = rolled_out(config, Worker(*commands))
        assert episode.score
        assert (episode.score.hard, episode.score.feedback) == (0, "sum.txt is wrong"), commands
    assert len(calls(docker, "build")) == 1, "an image is built once"
    assert containers(docker) == []


def test_network_is_given_where_the_task_asks_for_it(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # tasks may be named by a relative path
    folder = tasks(tmp_path, toml=TOML + "allow_internet = true\n").relative_to(tmp_path)
    rolled_out(config_of(folder), Worker(ADD))
    assert "--network" not in calls(docker, "run")[0]


def test_the_whole_package_is_in_the_container(docker: Path, tmp_path: Path) -> None:
    skill = Skill("Read references/x.md.", others={"references/x.md": b"HERON"})
    episode = rolled_out(config_of(tasks(tmp_path)), Worker("cat $SKILLOPT_SKILL_DIR/references/x.md"), skill=skill)
    assert "HERON" in [message["content"] for message in episode.messages]
    assert episode.opened == ("references/x.md",)
    assert episode.changes == (), "the package is no change of the agent's"


def test_a_rollout_comes_from_the_journal_with_its_score(docker: Path, tmp_path: Path) -> None:
    config, journal, worker = config_of(tasks(tmp_path)), Journal(":memory:"), Worker(ADD)
    first, second = (rolled_out(config, worker, journal=journal) for _ in range(2))
    assert first == second
    assert len(calls(docker, "run")) == 1


def test_tests_that_break_set_the_item_aside_and_the_work_is_kept(docker: Path, tmp_path: Path) -> None:
    config, journal, worker = config_of(tasks(tmp_path, test="#!/bin/sh\nexit 9\n")), Journal(":memory:"), Worker(ADD)
    for _ in range(2):
        with pytest.raises(ScorerError, match="the check failed: exit code 9"):
            rolled_out(config, worker, journal=journal)
    assert len(calls(docker, "run")) == 1
    assert containers(docker) == []


def test_a_task_without_a_test_script_is_refused(docker: Path, tmp_path: Path) -> None:
    folder = tasks(tmp_path)
    (folder / "sum-3" / "tests" / "test.sh").unlink()
    with pytest.raises(UserError, match=r"sum-3: has no tests/test\.sh"):
        FoldersEnv(config_of(folder).env)


def test_an_image_that_cannot_be_built_sets_the_item_aside_before_anything_is_asked(
    docker: Path, tmp_path: Path
) -> None:
    worker = Worker(ADD)
    with pytest.raises(RefusedError, match=r"(?s)sum-\d+/environment: docker build fails:.*RUN false"):
        rolled_out(config_of(tasks(tmp_path, dockerfile="FROM x\nRUN false\n")), worker)
    assert worker.asked == 0


def test_a_container_that_dies_and_a_docker_that_goes_away_are_never_a_score(docker: Path, tmp_path: Path) -> None:
    config = config_of(tasks(tmp_path))
    with pytest.raises(TransientError, match="the container ended too early"):
        rolled_out(config, Worker("echo DIE"))
    with pytest.raises(TransientError, match="Cannot connect to the Docker daemon"):
        rolled_out(config, Worker(f"touch {docker}/down"))
    (docker / "down").unlink()


def test_a_command_that_does_not_end_is_stopped_with_all_that_it_started(docker: Path, tmp_path: Path) -> None:
    config = config_of(tasks(tmp_path), agent_options={"limits": {"seconds": 4}})
    episode = rolled_out(config, Worker(f"echo $$ > {tmp_path}/pid; echo here; sleep 300", ADD))
    results = [message["content"] for message in episode.messages if message["role"] == "tool"]
    assert results[0] == "here\n[stopped at the limit of 4 s]"
    assert episode.score
    assert episode.score.hard == 1, "the container is still there for the next command"
    process = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z"


def test_tests_that_do_not_end_set_the_item_aside(docker: Path, tmp_path: Path) -> None:
    config = config_of(tasks(tmp_path, test="#!/bin/sh\nsleep 300\n"), options={"limits": {"seconds": 1}})
    with pytest.raises(ScorerError, match="stopped at the limit of 1 s"):
        rolled_out(config, Worker(ADD))
    assert containers(docker) == []


def _pids(docker: Path) -> list[int]:
    """Commands that run in containers."""
    return [int(text) for file in docker.glob("containers/*/running") if (text := file.read_text())]


def test_a_cancelled_rollout_leaves_no_container(docker: Path, tmp_path: Path) -> None:
    config = config_of(tasks(tmp_path))
    env = FoldersEnv(config.env)

    async def work() -> None:
        callers, _, _ = make_callers(config, Journal(":memory:"), {"target": Worker("touch /app/begun; sleep 300")})
        chat = BoundChat(callers["target"], label="x", stage="rollout")
        rollout = asyncio.create_task(env.run(env.items("train")[0], Skill("Add."), chat))
        while not (list(docker.glob("containers/*/root/app/begun")) and _pids(docker)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        pids = _pids(docker)
        rollout.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rollout
        for pid in pids:  # in Docker, they end with their container
            os.killpg(pid, signal.SIGKILL)

    asyncio.run(work())
    assert containers(docker) == []


def test_a_workspace_that_nobody_touched_is_scored_in_a_container_as_well(docker: Path, tmp_path: Path) -> None:
    env = FoldersEnv(config_of(tasks(tmp_path)).env)

    async def scored() -> Any:
        return await env.score(env.items("train")[0], "")  # type: ignore[misc]

    assert asyncio.run(scored()).hard == 0
    assert containers(docker) == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("absent", "sum-0: needs Docker, because environment/Dockerfile does more .*no `docker` command"),
        ("down", "sum-0: needs Docker, .*Cannot connect to the Docker daemon"),
        ("command", "needs Docker, and only the shell agent works in Docker"),
        ("compose", "needs Docker Compose"),
        ("toml", r"task.toml: environment.cpus: Input should be greater than 0"),
    ],
)
def test_what_docker_cannot_do_here_is_refused_by_name(docker: Path, tmp_path: Path, how: str, told: str) -> None:
    folder = tasks(tmp_path, toml="[environment]\ncpus = 0\n" if how == "toml" else TOML)
    if how == "absent":
        (tmp_path / "bin" / "docker").unlink()
    if how == "down":
        (docker / "down").touch()
    if how == "compose":
        (folder / "sum-3" / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    env = {"agent": "", "command": "cat"} if how == "command" else {}
    with pytest.raises(UserError, match=told):
        FoldersEnv(config_of(folder, **env).env)
