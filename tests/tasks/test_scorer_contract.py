"""What a scorer may take and return is the same on every path: `scorer.py:fn`, a function that a program passes in, an
env's own `score` and `judge`, a check command."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt import Item, Score
from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt.tasks import open_env
from skillopt.tasks.base import Env, check_splits, score_output
from skillopt.tasks.checks import read_result
from skillopt.tasks.load import load_object
from skillopt.tasks.memory import own_env

ROWS = [{"id": f"q{n}", "question": f"Q{n}?", "answers": ["right"]} for n in range(12)]
RIGHT = {
    "True": Score(hard=1, soft=1),
    "0.5": Score(hard=0, soft=0.5),
    "numpy.float32(0.5)": Score(hard=0, soft=0.5),
    "numpy.int64(1)": Score(hard=1, soft=1),
    "numpy.bool_(True)": Score(hard=1, soft=1),
    "(numpy.bool_(False), 'no')": Score(hard=0, soft=0, feedback="no"),
    "(0.25, 'a quarter')": Score(hard=0, soft=0.25, feedback="a quarter"),
    "{'hard': 1, 'soft': 0.7}": Score(hard=1, soft=0.7),
    "{'soft': numpy.float64(0.5), 'feedback': 'half'}": Score(hard=0, soft=0.5, feedback="half"),
    "{'score': 1}": Score(hard=1, soft=1),
    "Score(hard=0, soft=0.5, feedback='as a Score')": Score(hard=0, soft=0.5, feedback="as a Score"),
}
WRONG = ["None", "'1'", "float('nan')", "1.5", "-1", "{'hard': 2}", "{}", "[0, 1, 2]", "numpy.array([0.1, 0.2])"]
HAS_NUMPY = importlib.util.find_spec("numpy") is not None

Outcome = Score | str


def returning(value: str) -> str:
    needs = "import numpy\n" * ("numpy" in value) + "from skillopt import Score\n" * ("Score" in value)
    return f"{needs}def score(item, output):\n    return {value}\n"


BY_OUTPUT = (
    "import numpy\n" * HAS_NUMPY + "from skillopt import Score\ndef score(item, output):\n    return eval(output)\n"
)
"""A scorer whose score is what the output says: one process for every value."""


def config_of(folder: Path, **env: Any) -> Config:
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return Config.parse({"env": {"data": str(folder / "tasks.jsonl"), "output_root": str(folder / "out"), **env}})


def function_of(code: str) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(code, names)
    found: Callable[..., Any] = names["score"]
    return found


def from_file(folder: Path, code: str, **options: Any) -> Env:
    (folder / "scorer.py").write_text(code)
    options = {"timeout": 60, **options}
    return open_env(config_of(folder, scoring=f"{folder}/scorer.py:score", scoring_options=options))


def passed_in(folder: Path, code: str, **options: Any) -> Env:
    env = own_env(config_of(folder, scoring_options=options), None, None, function_of(code), None)[1]
    assert env is not None
    return env


class CustomEnv(Env):
    """What is not scored here is of no interest: no rollout is made."""

    name = "custom"

    def __init__(self, score: Callable[..., Any]) -> None:
        self.score = score  # type: ignore[method-assign]

    def items(self, split: str) -> list[Item]:
        return [Item(id=f"{split}-{n}", question=f"{split} {n}?") for n in range(3)]

    async def run(self, item: Item, skill: Any, chat: Any) -> Any:
        raise NotImplementedError


class JudgedEnv(CustomEnv):
    async def judge(self, item: Item, output: str, ask: Any) -> Any:  # type: ignore[override]
        return self.score(item, output)


def outcome(user_env: Any, output: str = "x", judge: Any = None) -> Outcome:
    """The score, or the error in words."""
    return outcomes(user_env, [output], judge)[output]


def outcomes(user_env: Any, outputs: Sequence[str], judge: Any = None) -> dict[str, Outcome]:
    env: Env = user_env

    async def work(output: str) -> Outcome:
        try:
            return await score_output(env, env.items("train")[0], output, judge)
        except SkillOptError as error:
            return str(error)
        except Exception as error:  # a symptom: a user would see a traceback
            return f"not an error of SkillOpt: {error!r}"

    async def all_of_them() -> dict[str, Outcome]:
        return {output: await work(output) for output in outputs}

    try:
        return asyncio.run(all_of_them())
    finally:
        env.close()


def on_every_path(folder: Path, values: Sequence[str]) -> dict[str, dict[str, Outcome]]:
    """The outcome of each value, by path."""
    values = [value for value in values if HAS_NUMPY or "numpy" not in value]
    return {
        "file": outcomes(from_file(folder, BY_OUTPUT), values),
        "passed in": outcomes(passed_in(folder, BY_OUTPUT), values),
        "env": outcomes(CustomEnv(function_of(BY_OUTPUT)), values),
        "judge": outcomes(JudgedEnv(function_of(BY_OUTPUT)), values, judge=lambda *_: None),
    }


def test_what_a_scorer_returns_means_the_same_on_every_path(tmp_path: Path) -> None:
    for path, found in on_every_path(tmp_path, list(RIGHT)).items():
        assert found == {value: RIGHT[value] for value in found}, path


def test_what_is_no_score_is_refused_in_the_same_words_on_every_path(tmp_path: Path) -> None:
    for path, found in on_every_path(tmp_path, WRONG).items():
        unclear = {value for value, said in found.items() if "a score is a number from 0 to 1" not in str(said)}
        assert unclear == set(), path


def test_the_score_from_which_a_task_is_solved_is_an_option_on_every_path(tmp_path: Path) -> None:
    code = returning("0.6")
    for options, hard in (({}, 0), ({"pass_at": 0.5}, 1)):
        for opened in (from_file, passed_in):
            try:
                env = opened(tmp_path, code, **options)
            except UserError as error:
                pytest.fail(f"{opened.__name__} refuses {options}: {error}")
            assert outcome(env) == Score(hard=hard, soft=0.6)


def test_a_function_that_a_program_passes_in_can_be_declared_noisy(tmp_path: Path) -> None:
    try:
        env: Any = passed_in(tmp_path, returning("0.6"), noisy=True)
    except UserError as error:
        pytest.fail(f"refused: {error}")
    assert env.noisy


def test_a_check_command_gives_a_score_in_the_form_of_any_scorer() -> None:
    assert read_result('{"hard": 1, "soft": 0.5}', "", 0, "") == Score(hard=1, soft=0.5)
    assert read_result('{"score": true, "feedback": "fine"}', "", 1, "") == Score(hard=1, soft=1, feedback="fine")
    with pytest.raises(SkillOptError, match="a score is a number from 0 to 1"):
        read_result('{"score": "high"}', "", 0, "")


TAKES = {
    "tolerance=0.1": Score(hard=1, soft=1),
    "**_": Score(hard=1, soft=1),
    "*, strict=True, **_": Score(hard=1, soft=1),
}


@pytest.mark.parametrize("opened", [from_file, passed_in])
@pytest.mark.parametrize("more", TAKES)
def test_a_further_parameter_of_a_scorer_is_not_the_workspace(
    tmp_path: Path, more: str, opened: Callable[..., Env]
) -> None:
    env = opened(tmp_path, f"def score(item, output, {more}):\n    return output == 'right'\n")
    try:
        check_splits(env)
    except UserError as error:
        pytest.fail(f"refused: {error}")
    assert outcome(env, "right") == TAKES[more]


@pytest.mark.parametrize("opened", [from_file, passed_in])
@pytest.mark.parametrize("more", ["workspace", "tolerance=0.1, workspace=None", "*, workspace"])
def test_a_parameter_named_workspace_gets_the_folder_wherever_it_stands(
    tmp_path: Path, more: str, opened: Callable[..., Env]
) -> None:
    env = opened(tmp_path, f"def score(item, output, {more}):\n    return workspace.is_dir()\n")
    assert outcome(env) == Score(hard=1, soft=1)


@pytest.mark.parametrize("opened", [from_file, passed_in])
def test_a_parameter_that_nothing_is_given_for_is_refused_at_the_start(
    tmp_path: Path, opened: Callable[..., Env]
) -> None:
    with pytest.raises(UserError, match=r"'folder'; a scorer is called with the item and the output. .* .workspace"):
        opened(tmp_path, "def score(item, output, folder):\n    return 1\n")


def test_a_file_that_is_edited_within_a_second_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file, found = tmp_path / "own.py", []
    for answer in (1, 2):
        file.write_text(f"def score(item, output):\n    return {answer}\n")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        found.append(load_object(f"{file}:score", "env.scoring")(None, ""))
    assert found == [1, 2]
