"""Metrics and data sets of dspy and adapters of gepa work as they are, with the packages themselves."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import skillopt
from skillopt.errors import UserError
from support import REPO

DSPY = Path(sys.prefix) / "dspy"
"""Where scripts/install_dspy.sh puts it."""


def example(library: str) -> str:
    """The program of the page that imports a library."""
    page = (REPO / "docs" / "coming_from.md").read_text(encoding="utf-8")
    (found,) = [
        text for text in re.findall(r"^```py\w*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if library in text
    ]
    return str(found)


def run(program: str, folder: Path, path: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(REPO / "src"), path]))}
    environment |= {"DSPY_CACHEDIR": str(folder / "cache")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


FEEDBACK = """
import dspy, skillopt
from skillopt import Item
def metric(gold, pred, trace, pred_name, pred_trace):
    assert isinstance(gold, dspy.Example) and trace is None
    told = f"wanted {gold.answer} for {gold.question}"
    return dspy.Prediction(score=0.5 * (gold.answer == pred.answer), feedback=told)
def plain(example, pred, trace=None):
    return example.answer in pred.answer
item = Item(id="a", question="Q?", answers=("yes",))
from skillopt.tasks.scorers import FunctionOptions, FunctionScorer
import asyncio
for each in (metric, plain):
    scorer = FunctionScorer(skillopt.from_dspy(each), FunctionOptions())
    score = asyncio.run(scorer(item, "yes"))
    print(score.hard, score.soft, score.feedback, scorer.fingerprint)
scorer = FunctionScorer(skillopt.from_dspy(dspy.evaluate.answer_exact_match), FunctionOptions())
print(asyncio.run(scorer(item, "No")).hard)
def teams(example, pred, trace=None):
    return example.team == pred.team == example.answer and example.ticket == "Q?"
names = {"question": "ticket", "answer": "team"}
scorer = FunctionScorer(skillopt.from_dspy(teams, answer="team", columns=names), FunctionOptions())
print(asyncio.run(scorer(item, "yes")).hard)
"""


@pytest.mark.extras
def test_a_metric_and_a_data_set_of_dspy_are_scorer_and_tasks(tmp_path: Path) -> None:
    here = DSPY.is_dir()
    if not here and importlib.util.find_spec("dspy") is None:
        pytest.skip("dspy is not installed: scripts/install_dspy.sh")
    path = str(DSPY) if here else ""
    lines = run(FEEDBACK, tmp_path, path).splitlines()
    assert lines[0].startswith("0.0 0.5 wanted yes for Q? ")
    assert lines[1].startswith("1.0 1.0 ")
    assert lines[0].split()[-1] != lines[1].split()[-1]  # another metric is another scorer, and another run
    assert lines[2:4] == ["0.0", "1.0"]
    before, after = map(float, run(example("import dspy"), tmp_path, path).split()[-2:])
    assert after > before


@pytest.mark.extras
def test_an_adapter_of_gepa_is_an_env(tmp_path: Path) -> None:
    pytest.importorskip("gepa")
    before, after = map(float, run(example("from gepa"), tmp_path).split()[-2:])
    assert after > before


class Echo:
    """An adapter without a reflective dataset, whose program has two parts."""

    def __init__(self) -> None:
        self.candidates: list[dict[str, str]] = []

    def evaluate(self, batch: Any, candidate: dict[str, str], capture_traces: bool = False) -> Any:
        self.candidates.append(candidate)
        outputs = [{"text": data["input"]} for data in batch]
        return type("Batch", (), {"outputs": outputs, "scores": [float(candidate["rules"] == "Say more.")]})


class Says:
    """An adapter with a setting, which gives what it was made with."""

    def __init__(self, scores: Any, outputs: Any = ("yes",), model: str = "") -> None:
        self.scores, self.outputs, self.model = scores, outputs, model

    def evaluate(self, batch: Any, candidate: dict[str, str], capture_traces: bool = False) -> Any:
        return type("Batch", (), {"outputs": self.outputs, "scores": self.scores})


def says(scores: Any, folder: Path, **more: Any) -> float:
    data = [{"input": f"q{n}", "answer": "yes"} for n in range(12)]
    keys = {"target_model": "agent:says", "output_root": str(folder), "hardware": {"max_retries": 0}}
    env = skillopt.from_gepa(Says(scores, **more), data)
    return float(skillopt.evaluate(None, skillopt.Skill("Say more."), env=env, **keys)["score"])


@pytest.mark.parametrize(
    ("scores", "more", "message"),
    [
        ([float("nan")], {}, "Says.evaluate: ValueError: gave nan as the score"),
        ([], {}, "returned 1 outputs and 0 scores for one task"),
        ([None], {}, "Says.evaluate: TypeError"),
        (None, {"outputs": None}, "Says.evaluate: TypeError"),
    ],
)
def test_what_an_adapter_gives_wrongly_is_named_and_scores_nothing(
    tmp_path: Path, scores: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(skillopt.SkillOptError, match=re.escape(message)):
        says(scores, tmp_path, **more)


def test_an_adapter_with_other_settings_is_another_env_and_no_earlier_reply_is_used(tmp_path: Path) -> None:
    assert says([1.0], tmp_path, model="large") == 1
    assert says([0.25], tmp_path, model="large") == 1, "the journal has the replies of this model"
    assert says([0.25], tmp_path, model="small") == 0
    with pytest.raises(UserError, match=r"tasks\[0\]: is not JSON"):
        skillopt.from_gepa(Echo(), [{"input": "q", "fn": object()}])


def test_an_adapter_gets_its_own_data_and_all_components(tmp_path: Path) -> None:
    adapter = Echo()
    data = [{"input": f"q{n}", "additional_context": {"k": "v"}, "answer": f"a{n}"} for n in range(12)]
    env = skillopt.from_gepa(adapter, data, component="rules", others={"tone": "kind"})
    keys = {"target_model": "agent:echo", "env": env, "output_root": str(tmp_path)}
    assert skillopt.evaluate(None, skillopt.Skill("Say more."), **keys)["score"] == 1
    assert adapter.candidates[0] == {"rules": "Say more.", "tone": "kind"}
    assert env.items("train")[0]["data"] in data
    with pytest.raises(UserError, match="has no method 'evaluate'"):
        skillopt.from_gepa(object(), data)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="as a list of dicts"):
        skillopt.from_gepa(adapter, ["q"])  # type: ignore[list-item]
