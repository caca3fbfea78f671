"""`env.name: folders`: tasks as folders in the form of Harbor and SkillsBench.

A task is a folder with instruction.md, task.toml, environment/ (what the workspace starts from) and tests/ (test.sh,
which writes a reward). Where the environment is plain files, with or without a Dockerfile that only copies them, the
tests run in the sandbox (envs/dockerfile.py). A task that needs more is done in a container (envs/docker.py).
"""

from __future__ import annotations

import json
import math
import shlex
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skillopt.config import EnvConfig
from skillopt.envs.agents import episode_from
from skillopt.envs.base import SPLITS, Chat, Episode, FileChange, Item, Score, ScorerError
from skillopt.envs.checks import hash_of, read_result
from skillopt.envs.data import content_hash
from skillopt.envs.docker import SKILL_DIR, Container, Docker, DockerError, Machine, docker_problem, image_tag
from skillopt.envs.dockerfile import NeedsDocker, Recipe, read_recipe
from skillopt.envs.qa import QAEnv, QAOptions
from skillopt.envs.sandbox import Limits, Outcome, Sandbox
from skillopt.envs.scorers import Scorer
from skillopt.envs.shell import IN_CONTAINER, ShellAgent
from skillopt.envs.splits import RATIOS, divide
from skillopt.envs.workspace import Files, Start, difference, read_files
from skillopt.errors import SkillOptError, UserError
from skillopt.models.base import TransientError
from skillopt.options import first_problem
from skillopt.skill import Skill

_MOST = 64 << 20
_MOST_NAMED = 50
_SPARE = 900.0
"""Seconds that a container lives on after agent and tests must have ended; it is removed long before."""
_FORM = "a task is a folder with instruction.md, task.toml, environment/ and tests/test.sh"


class FoldersOptions(QAOptions):
    """`env.options` of folders."""

    limits: Limits = Limits(seconds=120, cpu_seconds=60, disk_mb=256, processes=64)
    """What a task's tests may use up."""


class FoldersEnv(QAEnv):
    """The tasks of `env.split_dir` (train/, val/, test/), or of the one folder `env.data`, which is divided."""

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
            raise UserError(f"{contained[0]}: needs Docker, and only the shell agent works there; set env.agent: shell")

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        agent = self._agent
        if not self._tests.in_container(item) or not isinstance(agent, ShellAgent):
            return await super().run(item, skill, chat)

        async def work() -> dict[str, Any]:
            try:
                async with self._tests.container(item, agent.options.timeout) as container:
                    return await self._worked(item, skill, chat, agent, container)
            except DockerError as error:
                raise TransientError(f"{item.id}: {error}") from None

        result = await chat.whole(["docker", *agent.identity(item, skill)], work)
        if result.get("untested"):
            raise ScorerError(result["untested"])
        return episode_from(result)

    async def _worked(
        self, item: Item, skill: Skill, chat: Chat, agent: ShellAgent, container: Container
    ) -> dict[str, Any]:
        """A rollout with its score: the container is gone afterwards."""

        async def run(command: str) -> Outcome:
            return await container.run(["sh", "-c", command], agent.options.limits.seconds)

        with tempfile.TemporaryDirectory(prefix="skillopt-skill-") as root:
            skill.write_to(Path(root, "skill"))
            await container.put(Path(root, "skill"), SKILL_DIR)
        before = await container.get(container.workdir)
        result = await agent.worked(item, skill, chat, run, IN_CONTAINER)
        changes = await changes_in(container, before, self.workspaces.most)
        result["left"] = {"changes": [change.model_dump() for change in changes]}
        if result.get("score"):
            return result
        try:
            return result | {"score": (await self._tests.look_into(item, container)).model_dump()}
        except ScorerError as error:
            return result | {"untested": str(error)}


async def changes_in(container: Container, before: Start | None, most: int) -> list[FileChange]:
    """Below the container's WORKDIR with their contents, as far as those can be had; elsewhere by name."""
    kinds: dict[str, Any] = {"A": "added", "C": "changed", "D": "removed"}
    found = [FileChange(path=path, kind=kinds.get(kind, "changed")) for path, kind in await container.changed()]
    after = await container.get(container.workdir) if before else None
    if before is None or after is None:
        return found[:_MOST_NAMED]
    with tempfile.TemporaryDirectory(prefix="skillopt-left-") as root:
        after.write_to(Path(root))
        inside = difference(before, Path(root), most).changes
    outside = [change for change in found if not Path(change.path).is_relative_to(container.workdir)]
    return [*inside, *outside[:_MOST_NAMED]]


def read_folders(config: EnvConfig) -> tuple[dict[str, list[Item]], dict[str, Recipe]]:
    """All tasks by split, and what each starts from; refuses a folder that is no task or cannot run here."""
    recipes: dict[str, Recipe] = {}
    if config.split_dir:
        found = {split: _tasks_in(Path(config.split_dir) / split, recipes) for split in SPLITS}
    elif config.data and Path(config.data).is_dir():
        tasks = _tasks_in(Path(config.data), recipes)
        split = divide(tasks, RATIOS, config.split_seed)
        found = {name: [task for task in tasks if split[content_hash(task)] == name] for name in SPLITS}
    else:
        raise UserError(
            "env.split_dir: name a folder with train/, val/ and test/, each with task folders; or in env.data one "
            f"folder of tasks, which is divided; {_FORM}"
        )
    return found, recipes


def _tasks_in(folder: Path, recipes: dict[str, Recipe]) -> list[Item]:
    found = sorted(file.parent for file in folder.glob("*/instruction.md")) if folder.is_dir() else []
    if not found:
        raise UserError(f"{folder}: holds no task: {_FORM}")
    return [_task(each, recipes) for each in found]


def _task(folder: Path, recipes: dict[str, Recipe]) -> Item:
    if folder.name in recipes:
        raise UserError(f"{folder}: another task has the same name; the folder's name is the task's id")
    if not (folder / "tests" / "test.sh").is_file():
        raise UserError(f"{folder}: has no tests/test.sh; {_FORM}")
    settings = _settings(folder / "task.toml")
    try:
        recipe = read_recipe(folder)
    except NeedsDocker as needs:
        known = any(each.machine for each in recipes.values())
        if problem := "" if known else docker_problem():
            raise UserError(f"{needs}, which cannot be used here: {problem}; start it, or leave the task out") from None
        files = read_files("environment", folder, f"{folder}: environment", _MOST)
        recipe = Recipe(folder=folder, files=files, workdir="", machine=_machine(settings, folder / "task.toml"))
    recipes[folder.name] = recipe
    tests = read_files("tests", folder, f"{folder}: tests", _MOST)
    try:
        question = (folder / "instruction.md").read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise UserError(f"{folder / 'instruction.md'}: is not UTF-8 text") from None
    row: dict[str, Any] = {
        "id": folder.name,
        "question": question,
        "type": str((settings.get("metadata") or {}).get("category") or ""),
        "workspace": "environment",
        "check_files": {name: hash_of(content) for name, content in tests.items()},
    }
    if recipe.machine:
        row["container"] = recipe.machine.model_dump(exclude={"build_timeout_sec"})
    return Item(**row)


def _machine(settings: Mapping[str, Any], file: Path) -> Machine:
    try:
        return Machine.model_validate(settings.get("environment") or {})
    except ValidationError as error:
        raise UserError(f"{file}: environment.{first_problem(error)}") from None


def _settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(f"{file.parent}: has no task.toml; {_FORM}")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not readable as TOML: {error}") from None


class TestsCheck(Scorer):
    """tests/test.sh in the sandbox: the workspace at the place that the task names, tests at /tests, the reward in
    /logs/verifier. The tests are put there after the agent has ended."""

    __test__ = False  # no test of ours
    needs_workspace = True
    description = "The task's own tests look at the files that the agent leaves."

    def __init__(self, limits: Limits, recipes: Mapping[str, Recipe]) -> None:
        self._recipes, self._limits = recipes, limits
        self._docker = Docker()
        self._sandbox = None if all(recipe.machine for recipe in recipes.values()) else Sandbox(limits)

    async def look(self, item: Item, output: str, workspace: Path) -> Score:
        if self._sandbox is None or self.in_container(item):
            try:
                async with self.container(item) as container:
                    return await self.look_into(item, container)
            except DockerError as error:
                raise ScorerError(f"{item.id}: the tests could not be run: {error}") from None
        recipe, tests, logs = self._recipes[item.id], workspace.parent / "tests", workspace.parent / "logs"
        self._write(item, tests)
        (logs / "verifier").mkdir(parents=True)
        try:
            done = await self._sandbox.shell(
                ["sh", "-c", 'exec "$0"', "/tests/test.sh"] if _is_script(tests) else ["sh", "/tests/test.sh"],
                workspace,
                others={"tests": tests, "logs": logs},
                links={"/tests": "tests", "/logs": "logs", recipe.workdir: "workspace"},
                keep="logs",
            )
        except SkillOptError as error:
            raise ScorerError(f"{item.id}: the tests could not be run: {error}") from None
        return reward_in(logs / "verifier", done)

    def _write(self, item: Item, tests: Path) -> None:
        folder = self._recipes[item.id].folder
        files: Files = read_files("tests", folder, f"{folder}: tests", _MOST)
        Start(files=files, executable=frozenset(files), digest="").write_to(tests)

    # In a container

    def in_container(self, item: Item) -> bool:
        return self._recipes[item.id].machine is not None

    def container(self, item: Item, seconds: float = 0) -> AbstractAsyncContextManager[Container]:
        """Of a task that needs Docker, for that many seconds of an agent's work and for the tests."""
        recipe = self._recipes[item.id]
        assert recipe.machine
        life = seconds + self._limits.seconds + _SPARE
        return self._docker.container(image_tag(recipe.files), recipe.folder / "environment", recipe.machine, life)

    async def look_into(self, item: Item, container: Container) -> Score:
        """The tests are put there now, and what the agent may have left at their place is not counted."""
        with tempfile.TemporaryDirectory(prefix="skillopt-check-") as root:
            tests, logs = Path(root, "tests"), Path(root, "logs")
            self._write(item, tests)
            await container.put(tests, "/tests")
            places = f"/logs/verifier {shlex.quote(container.workdir)}"  # an agent may have removed its own folder
            await container.setup(f"rm -rf /logs/verifier && mkdir -p {places} && chmod 777 /logs/verifier")
            script = ["/tests/test.sh"] if _is_script(tests) else ["sh", "/tests/test.sh"]
            done = await container.run(script, self._limits.seconds)
            left = await container.get("/logs/verifier")
            if left is None:
                raise ScorerError(f"{item.id}: /logs/verifier cannot be copied out of the container")
            left.write_to(logs)
            return reward_in(logs, done)


def _is_script(tests: Path) -> bool:
    return (tests / "test.sh").read_bytes().startswith(b"#!")


def reward_in(folder: Path, done: Outcome) -> Score:
    """reward.json or reward.txt; without them the exit code decides."""
    told = (done.stdout.strip() + "\n" + done.stderr.strip()).strip()[-2000:]
    value: Any = None
    try:
        if (folder / "reward.json").is_file():
            found = json.loads((folder / "reward.json").read_text(encoding="utf-8"))
            numbers = list(found.values()) if isinstance(found, dict) else [found]
            value = found["reward"] if isinstance(found, dict) and "reward" in found else sum(numbers) / len(numbers)
        elif (folder / "reward.txt").is_file():
            value = float((folder / "reward.txt").read_text(encoding="utf-8"))
    except (ValueError, TypeError, ZeroDivisionError, UnicodeDecodeError) as error:
        raise ScorerError(f"the tests' reward cannot be read: {error}") from None
    if value is None:
        return read_result("", told, done.code, done.reason)
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise ScorerError(f"the tests gave the reward {value!r}; a reward is a number from 0 to 1")
    return Score(hard=float(value >= 1), soft=float(value), feedback="" if value >= 1 else told)
