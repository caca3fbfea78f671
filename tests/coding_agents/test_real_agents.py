"""Real coding-agent command lines from the npm registry, pointed at a model on this machine: no account, no network."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.models import open_model
from skillopt.models.base import FatalError, TransientError
from skillopt.models.bound import BoundChat
from skillopt.processes.agent_output import loaded
from skillopt.record.directory import RunDirectory
from skillopt.record.journal import Journal
from skillopt.sim.clerk import WORK, rules_in
from skillopt.skill import Skill
from skillopt.tasks.base import Episode
from skillopt.tasks.qa import QAEnv
from skillopt.training.callers import make_callers
from skillopt.training.trainer import TrainingLoop
from support import REPO, differing, essence, train_sim
from support.cli_endpoint import USED, Call, cli_endpoint
from support.cli_mind import simulated

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

BIN = REPO / ".venv" / "agents" / "node_modules" / ".bin"
PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "copilot": "copilot",
    "gemini-cli": "gemini",
    "opencode": "opencode",
    "qwen-code": "qwen",
}
SMALL = ("train.num_epochs=1", "train.batch_size=6", "env.options={rules: 4, train: 6, val: 6, test: 4}")
_MARK = "It must fit this JSON schema"


def installed(name: str) -> str:
    """Its program; a test without it is skipped, and says how to get it."""
    path = BIN / PROGRAMS[name]
    if not path.exists():
        pytest.skip(f"{PROGRAMS[name]} is not installed: scripts/install_agents.sh")
    return str(path)


def optimizer(texts: list[str]) -> str:
    """The simulated optimizer, whatever else the command line has put around our prompt."""
    asked = [text for text in texts if _MARK in text]
    return simulated(asked[-1]) if asked else "A title"


def pointed_at(name: str, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Lead a command line to our endpoint as its own docs say; gives what goes into optimizer_options."""
    for variable in [
        each for each in os.environ if each.startswith(("ANTHROPIC", "CLAUDE", "OPENAI", "CODEX", "GEMINI"))
    ]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    if name == "claude-code":
        monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    elif name == "codex":
        provider = f'[model_providers.lo]\nname = "lo"\nbase_url = "{url}/v1"\nenv_key = "LO_KEY"\n'
        write(home / ".codex" / "config.toml", f'model = "m"\nmodel_provider = "lo"\n{provider}')
        monkeypatch.setenv("LO_KEY", "dummy")
        return {"pass_env": ["LO_KEY"]}
    elif name == "copilot":
        for key, value in {"BASE_URL": f"{url}/v1", "TYPE": "openai", "API_KEY": "dummy"}.items():
            monkeypatch.setenv(f"COPILOT_PROVIDER_{key}", value)
    elif name == "gemini-cli":
        monkeypatch.setenv("GEMINI_API_KEY", "dummy")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", url)
        write(home / ".gemini" / "settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    elif name == "opencode":
        made = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{url}/v1", "apiKey": "dummy"}}
        config = {"provider": {"lo": {**made, "models": {"m": {}}}}}
        write(home / ".config" / "opencode" / "opencode.json", json.dumps(config))
    elif name == "qwen-code":
        for key, value in {"API_KEY": "dummy", "BASE_URL": f"{url}/v1", "MODEL": "m"}.items():
            monkeypatch.setenv(f"OPENAI_{key}", value)
        return {"args": ["--auth-type", "openai"]}
    return {}


MODELS = {"copilot": "m", "gemini-cli": "gemini-2.5-pro", "opencode": "lo/m"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def overrides(name: str, options: dict[str, Any]) -> list[str]:
    return [
        f"models.optimizer_model='{name}:{MODELS.get(name, '')}'",
        f"models.optimizer_options={json.dumps({**options, 'timeout': 180, 'at_once': 2})}",
        *SMALL,
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_whole_training_has_this_command_line_as_its_optimizer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(name)
    plain = train_sim(tmp_path / "plain", "models.optimizer_model=sim:world?no_schema=2", *SMALL)
    with cli_endpoint(optimizer) as (server, url):
        options = pointed_at(name, url, tmp_path / "home", monkeypatch)
        done = train_sim(tmp_path / "cli", *overrides(name, options))
    assert done.summary["best"]["val"] > done.summary["initial"]["val"]
    assert differing(essence(RunDirectory(plain.path)), essence(RunDirectory(done.path))) == []
    asked = [body for _, body in server.requests if _MARK in json.dumps(body)]
    calls = done.summary["calls"]["optimizer"]
    assert len(asked) == calls
    allowed = {"request_user_input", "view_image"} if name == "codex" else set()
    assert {tool for body in asked for tool in tools_of(body)} <= allowed, "it has nothing to read files with"
    if "optimizer" not in done.summary["tokens_estimated"]:
        tokens = done.summary["tokens"]["optimizer"]
        assert (tokens["prompt"], tokens["completion"]) == (USED[0] * calls, USED[1] * calls)


def tools_of(body: dict[str, Any]) -> list[str]:
    """The names of the tools that a request offers, in any protocol."""
    tools = body.get("tools") or []
    nested = [each for tool in tools for each in tool.get("functionDeclarations", [])]
    flat = [tool for tool in tools if "functionDeclarations" not in tool]
    return [
        str(tool.get("name") or (tool.get("function") or {}).get("name") or tool["type"]) for tool in [*flat, *nested]
    ]


def player(texts: list[str]) -> str | Call:
    """The simulated target: it knows the rules only when the agent has read the skill to it."""
    everything = "\n".join(texts)
    asked = re.findall(r"[^\n]*Give the codes for: [^\n]*", everything)
    if not asked:
        return "A title"
    if "Use the skill task-skill" in everything and "- For " not in everything:
        return Call("Skill", {"skill": "task-skill"})
    from skillopt.models.base import ChatRequest
    from skillopt.sim.model import SimulatedModel

    messages = ({"role": "system", "content": everything}, {"role": "user", "content": asked[-1]})
    return SimulatedModel("sim:world").target_text(ChatRequest(messages=messages), "")


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_whole_training_has_this_command_line_as_its_target(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(name)
    sure = "models.optimizer_model=sim:world"
    plain = train_sim(tmp_path / "plain", sure, *SMALL)
    with cli_endpoint(player) as (_, url):
        pointed_at(name, url, tmp_path / "home", monkeypatch)
        options: dict[str, Any] = {"timeout": 120}
        if name == "codex":
            provider = f'model_providers.lo={{name="lo", base_url="{url}/v1", env_key="LO_KEY"}}'
            options |= {"model": "m", "args": ["-c", 'model_provider="lo"', "-c", provider], "pass_env": ["LO_KEY"]}
        told = [f"env.command={name}", f"env.agent_options={json.dumps(options)}", "hardware.workers=2"]
        done = train_sim(tmp_path / "cli", *told, sure, "models.target_deterministic=true", *SMALL)
    for key in ("initial", "best"):
        assert done.summary[key]["val"] == plain.summary[key]["val"], "the agent found the skill and used it"
    assert done.best_skill.text == plain.best_skill.text


TARGETS: dict[str, tuple[str, dict[str, str], str]] = {
    "claude-code": ("Skill", {"skill": "task-skill"}, "Bash"),
    "codex": ("", {}, "exec_command"),
    "copilot": ("skill", {"skill": "task-skill"}, "bash"),
    "gemini-cli": ("activate_skill", {"name": "task-skill"}, "run_shell_command"),
    "opencode": ("skill", {"name": "task-skill"}, "bash"),
    "qwen-code": ("skill", {"skill": "task-skill"}, "run_shell_command"),
}
"""Each agent's tool for skills (Codex reads the skill that a task names by itself), its arguments, and its shell."""


def as_target(name: str, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The agent as the target, led to our endpoint by what a rollout may see: variables and arguments."""
    given = pointed_at(name, url, home, monkeypatch)
    options: dict[str, Any] = {"timeout": 300, **given}
    if name == "codex":
        provider = f'model_providers.lo={{name="lo", base_url="{url}/v1", env_key="LO_KEY"}}'
        options |= {"args": ["-c", 'model_provider="lo"', "-c", provider]}
    if name == "opencode":  # it looks for a skill's files with ripgrep, which it would fetch
        monkeypatch.setenv("OPENCODE_CONFIG", str(home / ".config" / "opencode" / "opencode.json"))
        monkeypatch.setenv("PATH", f"{ripgrep()}:{os.environ['PATH']}")
    options |= {"model": MODELS.get(name, "m" if name == "codex" else "")}
    return [f"env.command={name}", f"env.agent_options={json.dumps(options)}", "hardware.workers=2"]


def ripgrep() -> Path:
    kind = "arm64" if platform.machine() in {"arm64", "aarch64"} else "x64"
    return BIN.parent / "@qwen-code" / "qwen-code" / "vendor" / "ripgrep" / f"{kind}-{sys.platform}"


def shell_call(name: str, command: str) -> Call:
    key = "cmd" if name == "codex" else "command"
    return Call(TARGETS[name][2], {key: command} | ({} if name == "codex" else {"description": "work"}))


PACKAGE = Skill(
    "The word is in references/word.md, next to this file. Write it to out.txt.",
    "---\nname: task-skill\ndescription: Words. Use for every task here.\n---\n",
    {"references/word.md": b"HERON-77\n"},
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_task_with_files_is_done_by_this_command_line_with_the_whole_package(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(name)
    tool, arguments, _ = TARGETS[name]

    def mind(texts: list[str]) -> str | Call:
        """Loads the skill, finds the folder that it is in, copies the word from there, and ends."""
        everything = "\n".join(texts)
        if "Write the word" not in everything:
            return "A title"
        if "word-is-written" in everything:
            return "Done."
        if tool and "references/word.md, next" not in everything:
            return Call(tool, dict(arguments))
        file = "skills/task-skill/references/word.md"
        return shell_call(name, f"cat ~/.*/{file} ~/.config/*/{file} > out.txt 2>/dev/null; echo word-is-written")

    rows = [
        {
            "id": f"q{n}",
            "question": f"Write the word, {n}.",
            "workspace": {"a.txt": "x"},
            "expected": {"out.txt": "HERON-77"},
        }
        for n in range(8)
    ]
    with cli_endpoint(mind) as (_, url):
        told = as_target(name, url, tmp_path / "home", monkeypatch)
        write(tmp_path / "tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        write(
            tmp_path / "c.yaml",
            "env: {data: tasks.jsonl, scoring: files, output_root: out, options: {limit: {test: 1}}}",
        )
        config = Config.load(tmp_path / "c.yaml", [*told, "hardware.max_retries=0"])
        rolled = rollouts(config, PACKAGE)
        bare = rollouts(config, replace(PACKAGE, others={}))
    assert rolled.score is not None
    assert (rolled.score.hard, rolled.output) == (1, "Done.")
    assert [change.path for change in rolled.changes] == ["out.txt"]
    assert rolled.opened == ("references/word.md",)
    roles = [message["role"] for message in rolled.messages]
    assert roles.count("tool") >= (2 if tool else 1), "the transcript has the calls and their results"
    assert loaded(rolled.messages, "task-skill") == bool(tool)
    assert bare.score is not None
    assert bare.score.hard == 0, "without the file the task cannot be solved"


def rollouts(config: Config, skill: Skill) -> Episode:
    env = QAEnv(config.env)

    async def work() -> Episode:
        callers, _, _ = make_callers(config, Journal(":memory:"), {"target": open_model("target", config)})
        return await env.run(env.items("test")[0], skill, BoundChat(callers["target"], label="x", stage="rollout"))

    return asyncio.run(work())


@pytest.mark.parametrize("name", ["codex", "claude-code"])
def test_a_whole_training_on_tasks_with_files_has_this_command_line_as_its_target(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(name)
    tool, arguments, _ = TARGETS[name]

    def clerk(texts: list[str]) -> str | Call:
        """The simulated clerk behind the agent: it knows the house rules when the agent has read the skill to it."""
        everything = "\n".join(texts)
        asked = re.findall(r"[^\n]*(?:house rules|typing mistake)[^\n]*", everything)
        if not asked:
            return "A title"
        if "clerk-is-done" in everything:
            return "Done."
        if tool and "You keep the files" not in everything and "Use the skill" in everything:
            return Call(tool, dict(arguments))
        known = sorted(rules_in(everything))
        program = f"RULES = {known!r}\nTASK = {asked[-1]!r}\n{WORK}print('clerk' + '-is-done')\n"
        return shell_call(name, f"python3 - <<'END'\n{program}END")

    with cli_endpoint(clerk) as (_, url):
        told = as_target(name, url, tmp_path / "home", monkeypatch)
        small = ["env.agent=", "env.options={limit: {train: 4, val: 4, test: 2}}", "train.num_epochs=1"]
        more = ["evaluation.baselines=false", f"env.output_root={tmp_path / 'out'}", "models.target_deterministic=true"]
        config = Config.load(REPO / "configs/workspaces/default.yaml", [*small, *told, *more])
        done = asyncio.run(TrainingLoop(config).fit())
    assert done.summary["initial"]["val"] == 0
    assert done.summary["best"]["val"] > 0.4
    assert done.summary["tokens"]["target"]["prompt"] > 0, "what the agent reports is in the bill"


def test_a_refused_key_and_a_missing_login_are_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skillopt.config import Config
    from skillopt.models import open_model
    from skillopt.models.base import ChatRequest

    installed("claude-code")
    for name in ("claude-code", "gemini-cli", "qwen-code", "copilot"):
        home = tmp_path / name
        home.mkdir()
        pointed_at("none", "", home, monkeypatch)
        tree = {"models": {"optimizer_model": f"{name}:", "optimizer_options": {"timeout": 120}}}
        model = open_model("optimizer", Config.parse(tree))
        import asyncio

        with pytest.raises(FatalError, match="it needs a login"):
            asyncio.run(model.chat(ChatRequest(messages=({"role": "user", "content": "Hello"},))))


def test_a_limit_of_the_endpoint_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from skillopt.config import Config
    from skillopt.models import open_model
    from skillopt.models.base import ChatRequest
    from support.cli_endpoint import Refused

    installed("codex")

    def refuse(texts: list[str]) -> str:
        raise Refused(429, "Rate limit reached. Please try again in 20s.")

    with cli_endpoint(refuse) as (_, url):
        options = pointed_at("codex", url, tmp_path / "home", monkeypatch)
        tree = {"models": {"optimizer_model": "codex:", "optimizer_options": options}}
        model = open_model("optimizer", Config.parse(tree))
        with pytest.raises(TransientError, match="a limit of the account") as limited:
            asyncio.run(model.chat(ChatRequest(messages=({"role": "user", "content": "Hello"},))))
    assert limited.value.overloaded
