"""`env.name: folders`: tasks as folders in the form of Harbor and SkillsBench.

A task is a folder with instruction.md, task.toml, environment/ (what the workspace starts from) and tests/ (test.sh,
which writes a reward). Where the environment is plain files, with or without a Dockerfile that only copies them, the
tests run in the sandbox. A task that needs more says so (envs/dockerfile.py).
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt.config import EnvConfig
from skillopt.envs.base import SPLITS, Item, Score, ScorerError
from skillopt.envs.checks import hash_of, read_result
from skillopt.envs.data import content_hash
from skillopt.envs.dockerfile import Recipe, read_recipe
from skillopt.envs.qa import QAEnv, QAOptions
from skillopt.envs.sandbox import Limits, Outcome, Sandbox
from skillopt.envs.scorers import checked
from skillopt.envs.splits import RATIOS, divide
from skillopt.envs.workspace import Files, Start, read_files
from skillopt.errors import SkillOptError, UserError

_MOST = 64 << 20
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
        options = checked(FoldersOptions, config.options, "env.options")
        splits, tasks = read_folders(config)
        more = {"limit": options.limit, "workspace_mb": options.workspace_mb, "sandbox": options.sandbox}
        tests = TestsCheck(options.limits, tasks)
        starts = {name: task.files for name, task in tasks.items()}
        super().__init__(config.model_copy(update={"options": more}), splits, scorer=tests, starts=starts)


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
    recipes[folder.name] = read_recipe(folder)
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
    return Item(**row)


def _settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(f"{file.parent}: has no task.toml; {_FORM}")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not readable as TOML: {error}") from None


class TestsCheck:
    """tests/test.sh in the sandbox: the workspace at the place that the task names, tests at /tests, the reward in
    /logs/verifier. The tests are put there after the agent has ended."""

    __test__ = False  # no test of ours
    needs_answers, noisy, needs_workspace, fingerprint = False, False, True, ""
    description = "The task's own tests look at the files that the agent leaves."

    def __init__(self, limits: Limits, recipes: Mapping[str, Recipe]) -> None:
        self._recipes = recipes
        self._sandbox = Sandbox(limits)

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        return

    async def look(self, item: Item, output: str, workspace: Path) -> Score:
        recipe, tests, logs = self._recipes[item.id], workspace.parent / "tests", workspace.parent / "logs"
        files: Files = read_files("tests", recipe.folder, f"{recipe.folder}: tests", _MOST)
        Start(files=files, executable=frozenset(files), digest="").write_to(tests)
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

    def __call__(self, item: Item, output: str) -> Score:
        raise ScorerError("a workspace is looked at in a rollout only")

    def close(self) -> None:
        return


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
