"""Real coding-agent command lines from the npm registry, pointed at a model on this machine: no account, no network."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from cli_endpoint import USED, Call, cli_endpoint
from cli_mind import simulated
from skillopt.models.base import FatalError, TransientError
from skillopt.run.directory import RunDirectory
from support import REPO, differing, essence, train_sim

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
    from skillopt.models.simulated import SimulatedModel

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

    from cli_endpoint import Refused
    from skillopt.config import Config
    from skillopt.models import open_model
    from skillopt.models.base import ChatRequest

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
