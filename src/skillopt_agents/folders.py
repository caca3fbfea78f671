"""The env `folders`: each task is a folder in the format of Harbor and SkillsBench.

A task folder has instruction.md, task.toml, environment/ (the initial files of the workspace) and tests/ (with test.sh,
which writes a reward). If environment/ has no Dockerfile, or one that only copies all files to its WORKDIR, the tests
run in the sandbox. With any other Dockerfile, the task is done in a Docker container (skillopt_agents/docker.py).
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from skillopt.config import EnvConfig
from skillopt.config.options import first_problem
from skillopt.errors import SkillOptError, UserError
from skillopt.models.base import TransientError
from skillopt.skill import Skill
from skillopt.tasks.agents import journalled
from skillopt.tasks.base import SPLITS, Chat, Episode, FileChange, Item, Score, Scorer, ScorerError, score_of
from skillopt.tasks.checks import read_result
from skillopt.tasks.qa import QAEnv, QAOptions
from skillopt.tasks.sandbox import Sandbox, SandboxLimits, SandboxResult
from skillopt.tasks.shell import IN_CONTAINER, ShellAgent
from skillopt.tasks.splits import parse_ratios, split_folder
from skillopt.tasks.workspace import Files, WorkedEpisode, WorkspaceStart, difference, hash_of, read_files, start_of
from skillopt_agents.docker import PREFIX, SKILL_DIR, Container, Docker, DockerError, Machine, docker_problem

_MOST = 64 << 20
_MOST_NAMED = 50
_SPARE = 900.0
"""A container that was not removed ends by itself this many seconds after the time limits of agent and tests."""
_FORM = "a task is a folder with instruction.md, task.toml, environment/ and tests/test.sh"
_BUILDS = {"Dockerfile", "docker-compose.yaml", "docker-compose.yml"}
_PLAIN_PATH = re.compile(r"(/\w[\w.-]*)+")


@dataclass(frozen=True, kw_only=True)
class TaskFolder:
    """A task folder, with the initial files of its workspace."""

    folder: Path
    files: Files
    workdir: str = ""
    """The path at which the task's tests expect the workspace; empty for a task in a container."""
    machine: Machine | None = None
    """The resources of the task's container; None if the task does not need Docker."""


class FoldersOptions(QAOptions):
    """`env.options` of the env `folders`."""

    limits: SandboxLimits = SandboxLimits(seconds=120, cpu_seconds=60, disk_mb=256, processes=64)
    """The limits of time, disk and processes for a task's tests."""


class FoldersEnv(QAEnv):
    """The tasks of `env.split_dir` (train/, val/, test/), or of one folder, `env.data`, which SkillOpt splits."""

    task = "Each task is an instruction to change files in a folder; the agent runs commands there."
    scoring = "The task's own tests look at the files that the agent leaves and give a reward from 0 to 1."

    def __init__(self, config: EnvConfig) -> None:
        options = FoldersOptions.read(config.options, "env.options")
        splits, tasks = read_folders(config)
        more = {"limit": options.limit, "workspace_mb": options.workspace_mb, "sandbox": options.sandbox}
        self._tests = TestsCheck(options.limits, tasks)
        starts = {name: task.files for name, task in tasks.items()}
        contained = [task.folder for task in tasks.values() if task.machine]
        local = len(contained) < len(tasks)
        config = config.model_copy(update={"options": more})
        super().__init__(config, splits, scorer=self._tests, starts=starts, local=local)
        if contained and not isinstance(self._agent, ShellAgent):
            raise UserError(
                f"{contained[0]}: needs Docker, and only the shell agent works in Docker; set env.agent: shell"
            )

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        agent = self._agent
        if not self._tests.in_container(item) or not isinstance(agent, ShellAgent):
            return await super().run(item, skill, chat)

        async def work() -> WorkedEpisode:
            try:
                async with self._tests.container(item, agent.options.timeout) as container:
                    return await self._worked(item, skill, chat, agent, container)
            except DockerError as error:
                raise TransientError(f"{item.id}: {error}") from None

        episode = await journalled(chat, ["docker", *agent.identity(item, skill)], work)
        if episode.untested:
            raise ScorerError(episode.untested)
        return episode

    async def _worked(
        self, item: Item, skill: Skill, chat: Chat, agent: ShellAgent, container: Container
    ) -> WorkedEpisode:
        """Do a rollout and score it while its container still exists."""

        async def run(command: str) -> SandboxResult:
            return await container.run(["sh", "-c", command], agent.options.limits.seconds)

        with tempfile.TemporaryDirectory(prefix="skillopt-skill-") as root:
            skill.write_to(Path(root, "skill"))
            await container.put(Path(root, "skill"), SKILL_DIR)
        before = await container.get(container.workdir)
        episode = await agent.worked(item, skill, chat, run, IN_CONTAINER)
        changes = await changes_in(container, before, self.workspaces.most)
        update: dict[str, object] = {"changes": tuple(changes)}
        if episode.score is None:
            try:
                update["score"] = await self._tests.score_container(item, container)
            except ScorerError as error:
                update["untested"] = str(error)
        return episode.model_copy(update=update)


async def changes_in(container: Container, before: WorkspaceStart | None, most: int) -> list[FileChange]:
    """Return the files that were changed. For files in the container's WORKDIR, this includes the contents if they can
    be read; for all other files, only the paths."""
    kinds = {"A": "added", "C": "changed", "D": "removed"}
    changes = [
        FileChange.model_validate({"path": path, "kind": kinds.get(kind, "changed")})
        for path, kind in await container.changed()
    ]
    after = await container.get(container.workdir) if before else None
    if before is None or after is None:
        return changes[:_MOST_NAMED]
    with tempfile.TemporaryDirectory(prefix="skillopt-left-") as root:
        after.write_to(Path(root))
        inside = difference(before, Path(root), most).changes
    outside = [change for change in changes if not Path(change.path).is_relative_to(container.workdir)]
    return [*inside, *outside[:_MOST_NAMED]]


def read_folders(config: EnvConfig) -> tuple[dict[str, list[Item]], dict[str, TaskFolder]]:
    """Return all tasks by split, and each task's initial files. Raise UserError if a folder is not a task or cannot
    run here."""
    tasks: dict[str, TaskFolder] = {}
    if config.split_dir:
        splits = {split: _tasks_in(Path(config.split_dir) / split, tasks) for split in SPLITS}
    elif config.data and Path(config.data).is_dir():
        items = _tasks_in(Path(config.data), tasks)
        splits = split_folder(Path(config.data), items, ratios=parse_ratios(config.split), seed=config.split_seed)
    else:
        raise UserError(
            "env.split_dir: set it to a folder whose train/, val/ and test/ contain task folders; or set env.data to "
            f"one folder of tasks, and SkillOpt splits the tasks; {_FORM}"
        )
    return splits, tasks


def _tasks_in(folder: Path, tasks: dict[str, TaskFolder]) -> list[Item]:
    folders = sorted(file.parent for file in folder.glob("*/instruction.md")) if folder.is_dir() else []
    if not folders:
        raise UserError(f"{folder}: has no task; {_FORM}")
    return [_task(each, tasks) for each in folders]


def _task(folder: Path, tasks: dict[str, TaskFolder]) -> Item:
    if folder.name in tasks:
        raise UserError(f"{folder}: another task has the same name; the folder's name is the task's id")
    if not (folder / "tests" / "test.sh").is_file():
        raise UserError(f"{folder}: has no tests/test.sh; {_FORM}")
    settings = _settings(folder / "task.toml")
    task = _recipe(folder)
    if task is None:
        has_sandboxed = any(each.machine for each in tasks.values())
        if problem := "" if has_sandboxed else docker_problem():
            raise UserError(
                f"{folder}: needs Docker, because environment/Dockerfile does more than copy environment/ to its "
                f"WORKDIR. Docker cannot be used here: {problem}; start Docker, or remove the task's folder"
            )
        files = read_files("environment", folder, f"{folder}: environment", _MOST)
        task = TaskFolder(folder=folder, files=files, machine=settings.environment)
    tasks[folder.name] = task
    tests = read_files("tests", folder, f"{folder}: tests", _MOST)
    try:
        question = (folder / "instruction.md").read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise UserError(f"{folder / 'instruction.md'}: is not UTF-8 text") from None
    row = {
        "id": folder.name,
        "question": question,
        "type": settings.metadata.category,
        "workspace": "environment",
        "check_files": {name: hash_of(content) for name, content in tests.items()},
    }
    container = {"container": task.machine.model_dump(exclude={"build_timeout_sec"})} if task.machine else {}
    return Item.model_validate({**row, **container})


def _recipe(folder: Path) -> TaskFolder | None:
    """Return the initial files and the path where the tests expect them; None if the task needs Docker."""
    start = folder / "environment"
    files = read_files("environment", folder, f"{folder}: environment", _MOST) if start.is_dir() else {}
    if any(name.startswith("docker-compose") for name in files):
        raise UserError(
            f"{folder}: environment/docker-compose.yaml starts services, which needs Docker Compose. SkillOpt runs "
            "only tasks with one container; remove the task's folder"
        )
    plain = {name: content for name, content in files.items() if name not in _BUILDS}
    if "Dockerfile" not in files:
        return TaskFolder(folder=folder, files=plain, workdir="/app")
    lines = (start / "Dockerfile").read_text(encoding="utf-8", errors="replace").splitlines()
    match [line.split() for line in lines if line.strip() and not line.startswith("#")]:
        case [["FROM", _], ["WORKDIR", workdir], *copies] if _PLAIN_PATH.fullmatch(workdir):
            if not copies:
                return TaskFolder(folder=folder, files={}, workdir=workdir)
            if copies[0] in (["COPY", ".", "."], ["COPY", ".", workdir]) and not copies[1:]:
                return None if ".dockerignore" in files else TaskFolder(folder=folder, files=plain, workdir=workdir)
    return None


class _Metadata(BaseModel):
    category: str = ""


class TaskSettings(BaseModel):
    """The part of a task.toml that SkillOpt reads."""

    metadata: _Metadata = _Metadata()
    environment: Machine = Machine()


def _settings(file: Path) -> TaskSettings:
    if not file.is_file():
        raise UserError(f"{file.parent}: has no task.toml; {_FORM}")
    try:
        return TaskSettings.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as TOML: {error}") from None
    except ValidationError as error:
        raise UserError(f"{file}: {first_problem(error)}") from None


class TestsCheck(Scorer):
    """Runs a task's tests/test.sh after the agent has ended. In the sandbox or container, the workspace is at the
    task's WORKDIR and the tests are at /tests. The tests write the reward to /logs/verifier."""

    __test__ = False  # not a pytest class
    needs_workspace = True
    description = "The task's own tests look at the files that the agent leaves."

    def __init__(self, limits: SandboxLimits, tasks: Mapping[str, TaskFolder]) -> None:
        self._tasks, self._limits = tasks, limits
        self._docker = Docker()
        self._sandbox = None if all(task.machine for task in tasks.values()) else Sandbox(limits)

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        if self._sandbox is None or self.in_container(item):
            try:
                async with self.container(item) as container:
                    return await self.score_container(item, container)
            except DockerError as error:
                raise ScorerError(f"{item.id}: the tests could not be run: {error}") from None
        task, tests, logs = self._tasks[item.id], workspace.parent / "tests", workspace.parent / "logs"
        self._write(item, tests)
        (logs / "verifier").mkdir(parents=True)
        try:
            done = await self._sandbox.shell(
                _test_command(tests),
                workspace,
                others={"tests": tests, "logs": logs},
                links={"/tests": "tests", "/logs": "logs", task.workdir: "workspace"},
                keep="logs",
            )
        except SkillOptError as error:
            raise ScorerError(f"{item.id}: the tests could not be run: {error}") from None
        return reward_in(logs / "verifier", done)

    def _write(self, item: Item, tests: Path) -> None:
        folder = self._tasks[item.id].folder
        files: Files = read_files("tests", folder, f"{folder}: tests", _MOST)
        WorkspaceStart(files=files, executable=frozenset(files), digest="").write_to(tests)

    # In a container

    def in_container(self, item: Item) -> bool:
        return self._tasks[item.id].machine is not None

    def container(self, item: Item, seconds: float = 0) -> AbstractAsyncContextManager[Container]:
        """Start the container of a task that needs Docker. If nobody removes the container, it ends by itself some time
        after `seconds` plus the time limit of the tests."""
        task = self._tasks[item.id]
        assert task.machine
        life = seconds + self._limits.seconds + _SPARE
        tag = f"{PREFIX}task:{start_of(task.files).digest[:32]}"  # if environment/ changes, so does the image
        return self._docker.container(tag, task.folder / "environment", task.machine, life)

    async def score_container(self, item: Item, container: Container) -> Score:
        """Run the tests in the container and return their score. The tests are copied into the container only now, so
        they replace files that the agent may have left at the same paths."""
        with tempfile.TemporaryDirectory(prefix="skillopt-check-") as root:
            tests, logs = Path(root, "tests"), Path(root, "logs")
            self._write(item, tests)
            await container.put(tests, "/tests")
            places = f"/logs/verifier {shlex.quote(container.workdir)}"  # the agent may have removed its folder
            await container.setup(f"rm -rf /logs/verifier && mkdir -p {places} && chmod 777 /logs/verifier")
            done = await container.run(_test_command(tests), self._limits.seconds)
            left = await container.get("/logs/verifier")
            if left is None:
                raise ScorerError(f"{item.id}: /logs/verifier cannot be copied out of the container")
            left.write_to(logs)
            return reward_in(logs, done)


def _test_command(tests: Path) -> list[str]:
    is_script = (tests / "test.sh").read_bytes().startswith(b"#!")
    return ["/tests/test.sh"] if is_script else ["sh", "/tests/test.sh"]


def reward_in(folder: Path, done: SandboxResult) -> Score:
    """Return the score in reward.json or reward.txt; without such a file, the exit code decides."""
    printed = (done.stdout.strip() + "\n" + done.stderr.strip()).strip()[-2000:]
    value: Any = None
    try:
        if (folder / "reward.json").is_file():
            reward = json.loads((folder / "reward.json").read_text(encoding="utf-8"))
            numbers = list(reward.values()) if isinstance(reward, dict) else [reward]
            value = reward["reward"] if isinstance(reward, dict) and "reward" in reward else sum(numbers) / len(numbers)
        elif (folder / "reward.txt").is_file():
            value = float((folder / "reward.txt").read_text(encoding="utf-8"))
    except (ValueError, TypeError, ZeroDivisionError, UnicodeDecodeError) as error:
        raise ScorerError(f"the tests' reward cannot be read: {error}") from None
    if value is None:
        return read_result("", printed, done.code, done.reason)
    try:
        score = score_of(value)
    except ValueError as error:
        raise ScorerError(f"the tests' reward: {error}") from None
    return score.model_copy(update={"feedback": "" if score.hard else printed})
