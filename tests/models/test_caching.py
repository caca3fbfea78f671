"""The skill, with which every rollout's request begins: cached if the endpoint can, warmed, and counted."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skillopt.config import Config, HardwareConfig, Price
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, Message, TransientError, Usage
from skillopt.models.call import gather_all
from skillopt.models.prices import cost_of, list_price
from skillopt.models.providers import ProviderChat
from skillopt.preflight.plan import plan_run
from skillopt.record.journal import Journal
from skillopt.sim.model import SimOptions
from skillopt.skill import Skill
from skillopt.tasks import using_env
from skillopt.view.plan_lines import plan_lines
from support import REPO, SIM
from support.calls import caller, chat
from support.wire import AnthropicServer, served

SKILL = "Answer with the codes alone, as the house has them. " * 120
"""About 1,300 tokens, which is more than the least that is cached."""


class Watched(ChatModel):
    """A model with another one's name, which counts the calls that are on their way at once."""

    endpoint, deterministic = "here", True

    def __init__(self, name: str, fails: int = 0) -> None:
        self.name, self.fails = name, fails
        self.in_flight = 0
        self.seen: list[int] = []
        """For each call, how many were on their way when it was answered."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.in_flight += 1
        try:
            for _ in range(20):
                await asyncio.sleep(0)
            self.seen.append(self.in_flight)
            if self.fails:
                self.fails -= 1
                raise TransientError("not now")
            return ChatReply(text=str(request.messages[-1]["content"]))
        finally:
            self.in_flight -= 1


def wave(model: ChatModel, system: str, calls: int = 6, hardware: HardwareConfig | None = None) -> list[str]:
    async def work() -> list[str]:
        with Journal(":memory:") as journal:
            call = caller(model, 8, journal, hardware)
            replies = await gather_all(call(_task(system, n), stage="rollout", label="") for n in range(calls))
        return [reply.text for reply in replies]

    return asyncio.run(work())


def _task(system: str, number: int) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": f"task {number}"}]


@pytest.mark.parametrize(
    ("name", "system", "first", "most"),
    [
        ("anthropic:m", SKILL, 1, 5),
        ("bedrock:m", SKILL, 1, 5),
        ("anthropic:m", "Too short to be cached.", 6, 6),
        ("openai:m", SKILL, 6, 6),
    ],
)
def test_the_first_call_with_a_prefix_goes_alone_if_the_provider_needs_that(
    name: str, system: str, first: int, most: int
) -> None:
    model = Watched(name)
    assert wave(model, system) == [f"task {n}" for n in range(6)]
    assert (model.seen[0], max(model.seen)) == (first, most)


def test_a_first_call_that_fails_is_followed_by_another_alone(virtual_time: Any) -> None:
    model = Watched("anthropic:m", fails=2)
    assert wave(model, SKILL, hardware=HardwareConfig(max_retries=3)) == [f"task {n}" for n in range(6)]
    assert model.seen[:3] == [1, 1, 1]
    assert max(model.seen) == 5


def test_tokens_written_into_a_cache_have_a_price_of_their_own() -> None:
    usage = Usage(prompt=1_000_000, cached=600_000, written=100_000)
    assert cost_of(usage, Price(input=10, output=0, cached=1, written=12)) == pytest.approx(3 + 0.6 + 1.2)
    assert cost_of(usage, Price(input=10, output=0)) == pytest.approx(10)
    listed = list_price("anthropic:claude-sonnet-4-5")
    assert listed is not None
    assert (listed.written or 0) > listed.input > (listed.cached or 0)


def test_a_plan_counts_the_tokens_that_the_endpoint_will_have_in_its_cache() -> None:
    def planned(target: str, skill: str) -> Any:
        config = Config.load(SIM, [f"models.target_model={target}"])
        with using_env(config) as env:
            return plan_run(config, env, Skill(skill))

    plan, short = (planned("anthropic:claude-sonnet-4-5", skill) for skill in (SKILL, ""))
    other = planned("openai:gpt-4o", SKILL)  # its cache is not asked for, and may miss
    assert set(plan.cached) == {"target"}
    assert 0.5 < plan.cached["target"].likely / plan.tokens["target"].likely < 1
    assert (short.cached, other.cached) == ({}, {})
    assert any("are read from the endpoint's cache" in line for line in plan_lines(plan))
    uncached = cost_of(Usage(prompt=int(plan.tokens["target"].likely)), list_price("anthropic:claude-sonnet-4-5"))
    assert plan.usd["target"].likely < (uncached or 0) / 2


@pytest.mark.extras
def test_a_wave_writes_the_skill_into_the_cache_once_and_reads_it_from_then_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    server = AnthropicServer("right", SimOptions(latency=0.02))
    with served("/v1/messages", server) as url, Journal(tmp_path / "journal.sqlite") as journal:
        model = ProviderChat("anthropic:claude-test", "anthropic", "claude-test", url=url)

        async def work() -> None:
            call = caller(model, 8, journal)
            call.max_tokens = 50
            await gather_all(call(_task(SKILL, n), stage="rollout", label="") for n in range(8))
            await model.close()

        asyncio.run(work())
        (total,) = journal.totals()
    assert all(body["system"][-1]["cache_control"]["type"] == "ephemeral" for body in server.bodies)
    assert all("cache_control" not in json.dumps(body["messages"]) for body in server.bodies), "a task is read once"
    written = [usage["cache_creation_input_tokens"] for usage in server.usages]
    read = [usage["cache_read_input_tokens"] for usage in server.usages]
    assert (sum(1 for each in written if each), sum(1 for each in read if each)) == (1, 7)
    assert (total.written_tokens, total.cached_tokens) == (sum(written), sum(read))
    assert total.cached_tokens == 7 * total.written_tokens > 7000


@pytest.mark.extras
def test_an_endpoint_that_does_not_take_cache_points_is_asked_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    server, refused = AnthropicServer("right"), list[bool]()

    async def picky(http: web.Request) -> web.StreamResponse:
        refused.append("cache_control" in (await http.text()))
        if refused[-1]:
            words = "system.0.cache_control: Extra inputs are not permitted"
            error = {"type": "invalid_request_error", "message": words}
            return web.json_response({"type": "error", "error": error}, status=400)
        return await server(http)

    request = ChatRequest(messages=tuple(_task(SKILL, 1)), max_tokens=50, shared_prefix=True)
    with served("/v1/messages", picky) as url:
        assert chat(ProviderChat("anthropic:claude-test", "anthropic", "claude-test", url=url), request).text
    assert refused[-1] is False
    assert refused.count(True) <= 2


@pytest.mark.extras
def test_bedrock_gets_a_cache_point_after_the_skill(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bodies: list[dict[str, Any]] = []

    async def converse(http: web.Request) -> web.StreamResponse:
        bodies.append(await http.json())
        usage = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 1512, "cacheReadInputTokens": 1500}
        message = {"role": "assistant", "content": [{"text": "NX-42"}]}
        reply = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 1}}
        return web.json_response(reply)

    name = "anthropic.claude-3-7-sonnet-20250219-v1:0"
    with served("/model/{name}/converse", converse) as url:
        model = ProviderChat(f"bedrock:{name}", "bedrock", name, url=url)
        request = ChatRequest(messages=tuple(_task(SKILL, 1)), max_tokens=50, shared_prefix=True)
        reply = chat(model, request)
    assert bodies[0]["system"][-1] == {"cachePoint": {"type": "default"}}
    assert (reply.text, reply.usage.cached) == ("NX-42", 1500)


def test_the_bench_says_what_the_recorded_trainings_save_as_the_page_has_it() -> None:
    done = subprocess.run(
        [sys.executable, "bench/caching.py"], cwd=REPO, capture_output=True, text=True, check=True, timeout=120
    )
    means = re.findall(r"mean of (\d+) runs: (\d+)% of the cost", done.stdout)
    page = (REPO / "docs" / "budget.md").read_text(encoding="utf-8")
    named = re.findall(r"(\d+) % at (?:the list price|that) of\s+`", page)
    assert [count for count, _ in means] == re.findall(r"mean of (\d+) recorded", page) * 2
    assert [int(share) for _, share in means] == pytest.approx([int(share) for share in named], abs=5)  # prices change
    assert "  expenses-mail-handoff-ours-1 " in done.stdout
