"""What is known about a provider is a row of one table, and a new row is a whole provider."""

from __future__ import annotations

import asyncio
import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from aiohttp import web

import skillopt
from skillopt import ChatReply
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models import endpoint_of, open_model
from skillopt.models.base import ChatModel, ChatRequest, as_chat_model
from skillopt.models.prices import is_priced, price_of
from skillopt.provider_table import PROVIDERS, Provider, path_of, program_of, provider_of, with_provider
from support.wire import served

SRC = Path(skillopt.__file__).parents[1]
PREFIXES = "|".join(sorted([*PROVIDERS, *(point.name for point in entry_points(group="skillopt.agents"))]))
NAME = rf"""["'](?:{PREFIXES}):["'a-z]"""
PREFIX_TESTS = re.compile(
    rf"(?:startswith|removeprefix|partition|split)\(\(?{NAME}|"
    rf"""(?:provider|prefix|kind) (?:==|!=|in) [({{]?["'](?:{PREFIXES})["']|partition\(":"\)\[0\] (?:==|in) """
)


def test_nothing_else_looks_at_how_a_models_name_begins() -> None:
    files = [path for path in SRC.glob("skillopt*/**/*.py") if path.name != "provider_table.py"]
    assert len(files) > 200
    assert [f"{path}: {match[0]}" for path in files for match in PREFIX_TESTS.finditer(path.read_text())] == []
    assert PREFIX_TESTS.search('if name.startswith(("local:", "sim:")):')
    assert PREFIX_TESTS.search('if provider == "handoff":')


def test_a_new_provider_is_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def answer(http: web.Request) -> web.Response:
        payload = await http.json()
        seen.append((http.headers["Authorization"], payload["model"]))
        assert payload["max_completion_tokens"] == 77
        message = {"content": payload["messages"][-1]["content"]}
        usage = {"prompt_tokens": 5, "completion_tokens": 1}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    with served("/v9/chat/completions", answer) as url:
        row = Provider(
            prefix="acme",
            factory="skillopt.models.openai_chat:open_openai",
            families="acme-",
            key_variable="ACME_TOKEN",
            url=f"{url}/v9",
            limit_field="max_completion_tokens",
            deterministic=True,
            call_timeout=7.0,
            max_concurrency=lambda: 2,
            is_free=True,
        )
        monkeypatch.setitem(PROVIDERS, "acme", row)
        monkeypatch.setenv("ACME_TOKEN", "acme-secret")
        models = {"target_model": "acme:large", "target_max_tokens": 77}
        config = Config.parse({"models": models, "env": {"output_root": str(tmp_path)}})
        tasks = [{"question": f"Say {n}", "answer": f"Say {n}"} for n in range(12)]
        result = skillopt.evaluate(config, skillopt.Skill(""), tasks=tasks)
    assert result["score"] == 1
    assert set(seen) == {("Bearer acme-secret", "large")}
    assert endpoint_of("target", config) == ("", "ACME_TOKEN")
    assert (config.role("target").workers, config.role("target").call_timeout) == (2, 7.0)
    assert with_provider("acme-tiny") == "acme:acme-tiny"
    assert is_priced("acme:large", {})
    assert price_of("acme:large", {}) is not None
    monkeypatch.delenv("ACME_TOKEN")
    with pytest.raises(UserError, match="acme:large: no key; set ACME_TOKEN"):
        open_model("target", config)


def test_coding_agents_come_from_installed_packages() -> None:
    names = {point.name for point in entry_points(group="skillopt.agents")}
    assert {"claude-code", "codex", "copilot", "gemini-cli", "goose", "opencode", "qwen-code"} <= names
    assert names.isdisjoint(PROVIDERS)
    claude = provider_of("claude-code:opus")
    assert (claude.runs_program, claude.reports_cost, claude.estimates_tokens, claude.roles) == (
        True, True, False, ("optimizer",),
    )  # fmt: skip
    assert provider_of("copilot").estimates_tokens
    assert program_of("command:claude-code").reports_cost
    assert not program_of("command:my-agent").reports_cost


def test_a_name_that_is_a_path_is_known_as_one() -> None:
    names = ("local:/a/b.gguf", "local:qwen", "handoff:letters", "handoff", "openai:a/b")
    assert [path_of(name) for name in names] == ["/a/b.gguf", "", "letters", "", ""]


def test_an_object_with_a_method_chat_is_enough() -> None:
    class Bare:
        max_concurrency = 3

        async def chat(self, request: ChatRequest) -> ChatReply:
            return ChatReply(text=json.dumps(len(request.messages)))

    model = as_chat_model(Bare())
    assert isinstance(model, ChatModel)
    assert (model.name, model.max_concurrency, model.human_paced) == ("Bare", 3, False)
    assert asyncio.run(model.chat(ChatRequest(messages=()))).text == "0"
    asyncio.run(model.close())
    assert as_chat_model(model) is model
