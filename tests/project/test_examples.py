"""The examples, run as their readers run them, over HTTP, with a stand-in that follows rules and knows none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support import REPO, skillopt
from support.wire import served


class StandIn:
    """A chat endpoint with tools. As the target it does only what the skill says; as the optimizer it turns what the
    scorer says of failures into rules."""

    def __init__(self) -> None:
        self.tool_results = 0

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        message = self._optimizer(body) if "response_format" in body else self._target(body)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return web.json_response({**about, "choices": [choice], "usage": usage})

    def _target(self, body: dict[str, Any]) -> dict[str, Any]:
        said = [(message["role"], str(message.get("content") or "")) for message in body["messages"]]
        skill = "".join(text for role, text in said if role == "system")
        task, *rest = (text for role, text in said if role != "system")
        if "tools" in body:
            return self._shop(skill, task, rest)
        if task.startswith("Part of the program"):
            return {"content": _subject(skill, task)}
        known = re.findall(r"- Messages about (\w+) go to (\w+)\.", skill)
        return {"content": next((desk for word, desk in known if f"{word} " in f"{task} "), "Lisbon")}

    def _shop(self, skill: str, task: str, rest: list[str]) -> dict[str, Any]:
        group, number, thing = re.findall(r"a (\w+) customer pay for (\d) (\w+)", task)[0]
        if not rest:
            product = "shelf" if thing == "shelves" else thing.removesuffix("s")
            call = {"name": "price", "arguments": json.dumps({"product": product})}
            return {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}
        self.tool_results += 1
        less = dict(re.findall(r"Customers of the group (\w+) pay (\d+) % less", skill))
        return {"content": str(int(rest[-1]) * int(number) * (100 - int(less.get(group, 0))) // 100)}

    def _optimizer(self, body: dict[str, Any]) -> dict[str, Any]:
        user = str(body["messages"][-1]["content"])
        if body["response_format"]["json_schema"]["name"] != "reflect":
            return {"content": json.dumps({"patterns": [], "edits": [], "guidance": "", "memory": "-"})}
        ids = sorted(set(re.findall(r'"id": ?"([^"]+)"', user)))
        shown = user.partition("<failures>")[2]
        rules = [f"Customers of the group {g} pay {n} % less." for g, n in LESS.items() if f"a {g} customer" in shown]
        rules += [rule for rule in RULES if rule in shown]
        return {"content": json.dumps({"patterns": [], "edits": [_edit(rule, ids) for rule in rules[:4]]})}


LESS = {"gold": 20, "silver": 10, "staff": 50}
RULES = (
    "the line must begin with the part of the program and a colon",
    "the line must not be longer than fifty characters",
    "the line must not end with a full stop",
)


def _subject(skill: str, task: str) -> str:
    area, line = re.findall(r"program: (\w+)\nChange: (.*)", task)[0]
    line = f"{area}: {line}" if RULES[0] in skill else line
    line = line[:50].rstrip() if RULES[1] in skill else line
    return line.rstrip(".") if RULES[2] in skill else line


def _edit(text: str, ids: list[str]) -> dict[str, Any]:
    common = {"op": "add", "section": "Rules", "anchor": "", "rationale": "", "pattern": ""}
    return {**common, "text": f"- {text}", "trajectory_ids": ids}


@pytest.fixture
def endpoint() -> Iterator[tuple[StandIn, list[str]]]:
    stand_in = StandIn()
    with served("/v1/chat/completions", stand_in) as url:
        yield stand_in, ["--target_model", "vllm:x", "--optimizer_model", "vllm:x", f"hardware.vllm_url={url}/v1"]


def only_summary(out: Path) -> dict[str, Any]:
    (path,) = out.glob("*/*/summary.json")
    summary: dict[str, Any] = json.loads(path.read_text())
    return summary


def test_own_tasks_in_one_file_train_and_the_split_is_written_down(
    endpoint: tuple[StandIn, list[str]], tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(REPO / "examples" / "own_tasks", tmp_path / "own_tasks")
    config = str(tmp_path / "own_tasks" / "config.yaml")
    done = skillopt("train", "-c", config, *endpoint[1], f"env.output_root={tmp_path / 'out'}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "24 train, 12 val, 12 test" in done.stdout
    assert (tmp_path / "own_tasks" / "tasks.split.json").exists()
    assert only_summary(tmp_path / "out")["edits"]["proposed"] > 0


def test_an_agent_with_tools_learns_what_its_tool_does_not_know(
    endpoint: tuple[StandIn, list[str]], tmp_path: Path
) -> None:
    config = "examples/tool_agent/config.yaml"
    done = skillopt("train", "-c", config, *endpoint[1], f"env.output_root={tmp_path}", "train.num_epochs=1")
    assert done.returncode == 0, done.stderr
    summary = only_summary(tmp_path)
    assert (summary["initial"]["test"], summary["best"]["test"]) == (0.0, 1.0)
    assert endpoint[0].tool_results > 50


FRAMEWORKS = {
    "openai_sdk": "openai",
    "agents_sdk": "agents",
    "langgraph_agent": "langgraph",
    "pydantic_ai_agent": "pydantic_ai",
}


@pytest.mark.extras
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_on_a_framework_learns_and_its_tokens_are_in_the_bill(
    name: str, endpoint: tuple[StandIn, list[str]], tmp_path: Path
) -> None:
    pytest.importorskip(FRAMEWORKS[name], reason="pip install 'skillopt[frameworks]'")
    *optimizer, url = endpoint[1][2:]
    config, out = "examples/frameworks/config.yaml", f"env.output_root={tmp_path}"
    overrides = [f"env.agent=examples/frameworks/{name}.py:run", "train.num_epochs=1", out, url]
    environment = {"OPENAI_BASE_URL": url.partition("=")[2], "OPENAI_API_KEY": "sk-x"}
    done = skillopt("train", "-c", config, *optimizer, *overrides, env=environment)
    assert done.returncode == 0, done.stderr
    summary = only_summary(tmp_path)
    assert (summary["initial"]["test"], summary["best"]["test"]) == (0.0, 1.0)
    assert endpoint[0].tool_results > 50
    assert summary["tokens"]["target"]["prompt"] == 2 * summary["calls"]["target"]


@pytest.mark.slow
def test_a_scorer_of_ones_own_teaches_through_its_feedback(endpoint: tuple[StandIn, list[str]], tmp_path: Path) -> None:
    *models, url = endpoint[1]
    program = str(REPO / "examples" / "custom_scorer" / "train.py")
    arguments = [*models, "--vllm_url", url.partition("=")[2], "--output_root", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    done = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    summary = only_summary(tmp_path)
    assert summary["initial"]["test"] < 0.6
    assert summary["best"]["test"] == 1.0
    assert "must not end with a full stop" in done.stdout


@pytest.mark.extras
def test_the_notebook_runs_from_top_to_bottom_in_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="pip install 'skillopt[dev-all]'")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(REPO / "src"))
    notebook = nbformat.read(REPO / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        str(output.get("text", output.get("data", ""))) for cell in notebook.cells for output in cell.get("outputs", ())
    ]
    assert any(text.startswith("Better: ") for text in shown)
    assert any("- For maple, answer ZM-73." in text for text in shown)
