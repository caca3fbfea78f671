"""Every provider by name: wire formats as they are, keys by name and never by value, parameters that are refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models import open_model
from skillopt.models.base import ChatReply, ChatRequest, FatalError, RefusedError, Schema, TransientError, Usage
from skillopt.models.http import classify, refused_parameter, retry_after
from skillopt.models.openai_chat import OpenAIChat, answer
from skillopt.models.providers import ProviderChat
from skillopt.record.directory import RunDirectory
from skillopt.record.journal import Journal
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.sim.server import _request as request_of
from support import REPO, SIM, differing, essence, over_http, sim_server, skillopt, skillopt_process, train_sim, until
from support.calls import ask_all, caller, chat, hello
from support.wire import AnthropicServer, AzureServer, Handler, completion, served

MARK = "MARKED-3f1c9b7a5d2e"
SMALL = ["env.options={rules: 8, train: 12, val: 8, test: 8}", "train.num_epochs=2"]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


# The wire formats


@pytest.mark.extras
def test_an_anthropic_target_and_an_azure_optimizer_train_as_the_simulated_world_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", f"{MARK}-anthropic")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", f"{MARK}-azure")
    target, optimizer = (
        AnthropicServer(f"{MARK}-anthropic"),
        AzureServer(f"{MARK}-azure", options=SimOptions(duds=0.35)),
    )
    with served("/v1/messages", target) as one, served(AzureServer.PATH, optimizer) as other:
        result = train_sim(
            tmp_path / "wire", *SMALL, "models.target_model=anthropic:claude-test", f"models.target_url={one}",
            "models.optimizer_model=azure:gpt-test", f"hardware.azure_endpoint={other}",
        )  # fmt: skip
    simulated = train_sim(tmp_path / "sim", *SMALL, "models.target_deterministic=false")
    assert differing(essence(RunDirectory(result.path)), essence(RunDirectory(simulated.path))) == []
    assert {body["model"] for body in target.bodies} == {"claude-test"}
    assert "system" in target.bodies[0]
    assert set(optimizer.asked) == {("gpt-test", "2024-10-21")}
    assert {"reflect", "meta_skill"} <= {body["response_format"]["json_schema"]["name"] for body in optimizer.bodies}


@pytest.mark.extras
def test_an_anthropic_optimizer_is_given_its_schema_as_a_tool_named_after_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", f"{MARK}-other")
    server = AnthropicServer(f"{MARK}-other", SimOptions(duds=0.35))
    with served("/v1/messages", server) as url:
        result = train_sim(
            tmp_path, *SMALL, "models.optimizer_model=anthropic:claude-test", f"models.optimizer_url={url}",
            "models.optimizer_key_name=OTHER_KEY",
        )  # fmt: skip
    assert result.summary["best"]["val"] > result.summary["initial"]["val"]
    assert {"reflect", "meta_skill"} <= {body["tools"][0]["name"] for body in server.bodies}


@pytest.mark.extras
def test_thinking_is_no_part_of_the_answer_and_cached_tokens_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    with served("/v1/messages", AnthropicServer("right")) as url:
        model = ProviderChat("anthropic:claude-test", "anthropic", "claude-test", url=url)
        messages = ({"role": "user", "content": "How many words does this prompt have?"},)
        reply = chat(model, ChatRequest(messages=messages, max_tokens=50))
    assert reply.text == "I do not know what is asked."
    assert reply.usage.cached == 3
    assert reply.usage.prompt > 3


@pytest.mark.extras
def test_a_model_that_stays_open_answers_in_every_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the API has its own loop, and connections do not outlive theirs."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    with served("/v1/messages", AnthropicServer("right")) as one, sim_server() as (_, other):
        for model in (
            ProviderChat("anthropic:claude-test", "anthropic", "claude-test", url=one),
            OpenAIChat("vllm:world", "world", url=other, key_name="NO_KEY", key_needed=False),
        ):
            replies = [asyncio.run(model.chat(hello(max_tokens=50))).text for _ in range(3)]
            assert replies == ["I do not know what is asked."] * 3
            asyncio.run(model.close())


@pytest.mark.extras
def test_images_reach_every_wire_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "right")
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    request = ChatRequest(messages=({"role": "user", "content": content},))
    anthropic, azure = AnthropicServer("right"), AzureServer("right")
    with served("/v1/messages", anthropic) as one, served(AzureServer.PATH, azure) as other:
        chat(ProviderChat("anthropic:claude-test", "anthropic", "claude-test", url=one), request)
        config = Config.parse({"models": {"target_model": "azure:gpt-test"}, "hardware": {"azure_endpoint": other}})
        chat(open_model("target", config), request)
    block = anthropic.bodies[0]["messages"][0]["content"][1]
    assert block["type"] == "image"
    assert block["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL.split(",")[1]}
    assert azure.bodies[0]["messages"][0]["content"] == content


def test_azure_takes_an_entra_token_where_there_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "entra-token-value")
    with served(AzureServer.PATH, AzureServer(token="entra-token-value")) as url:
        config = Config.parse({"models": {"target_model": "azure:gpt-test", "target_url": url}})
        assert chat(open_model("target", config), hello()).text


# Answers that are too long


@pytest.mark.extras
@pytest.mark.parametrize(("provider", "path"), [("anthropic", "/v1/messages"), ("alibaba", "/chat/completions")])
@pytest.mark.parametrize("status", [200, 500])
def test_a_bomb_for_a_providers_library_is_cut_off(
    provider: str, path: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "right")
    bomb = gzip.compress(b" " * (256 * 2**20), compresslevel=1)

    async def explode(http: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=bomb, headers={"Content-Encoding": "gzip"})

    with served(path, explode) as url:
        model = ProviderChat(f"{provider}:m", provider, "m", url=url)
        tracemalloc.start()
        with pytest.raises(TransientError, match="longer than 8 MB" if status == 200 else "500"):
            chat(model, hello(max_tokens=50))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 * 2**20, f"{peak >> 20} MB were held"


@pytest.mark.extras
@pytest.mark.parametrize("status", [200, 500])
def test_a_body_without_end_for_a_providers_library_is_cut_off(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """128 MB stand for a body without end."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    sent = 0

    async def endless(http: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(status=status)
        await response.prepare(http)
        for _ in range(128):
            await response.write(b" " * 2**20)
            sent += 1
        return response

    with served("/v1/messages", endless) as url:
        model = ProviderChat("anthropic:m", "anthropic", "m", url=url)
        with pytest.raises(TransientError):
            chat(model, hello(max_tokens=50))
    assert sent < 64, "the rest was not read"


@pytest.mark.extras
def test_a_providers_library_unpacks_an_answer_and_answers_again_after_it_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "right")
    server, asked = AnthropicServer("right"), list[str]()

    async def packed(http: web.Request) -> web.StreamResponse:
        asked.append(http.headers["Accept-Encoding"])
        response = await server(http)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def twice(model: ProviderChat) -> list[str]:
        replies = []
        for _ in range(2):
            replies.append((await model.chat(hello(max_tokens=50))).text)
            await model.close()
        return replies

    with served("/v1/messages", packed) as url:
        model = ProviderChat("anthropic:claude-test", "anthropic", "claude-test", url=url)
        assert asyncio.run(twice(model)) == ["I do not know what is asked."] * 2
    assert asked == ["gzip", "gzip"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (" " * 7_000_000 + "think>", None),
        ("a" * 7_000_000 + "</think> b", "b"),
        ("<think>" + "a" * 7_000_000, ""),
        ("<think>a" * 900_000 + "</think>", None),
    ],
    ids=["spaces", "no beginning", "no end", "many"],
)
@pytest.mark.slow
def test_a_long_thought_takes_no_more_memory_than_its_text(text: str, left: str | None) -> None:
    code = "import sys, resource; from skillopt.models.openai_chat import answer; text = sys.stdin.read(); before = "
    code += "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; shown = answer(text); print(repr(shown[:9]), "
    code += "shown == text, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, sep=chr(10))"
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True)
    shown, same, kilobytes = done.stdout.splitlines()
    assert same == "True" if left is None else shown == repr(left)
    assert int(kilobytes) < 100_000, f"{kilobytes} KB for a text of {len(text) // 1000} KB"


# Parameters that an endpoint refuses


def picky(refusals: dict[str, str], bodies: list[dict[str, Any]]) -> Handler:
    """An endpoint that answers 400 to some parameters, in the words that reasoning models' endpoints use."""

    async def handler(http: web.Request) -> web.StreamResponse:
        body = await http.json()
        bodies.append(body)
        for name, words in refusals.items():
            if name in body:
                error = {"message": words, "type": "invalid_request_error", "param": name, "code": "unsupported_value"}
                return web.json_response({"error": error}, status=400)
        return web.json_response(completion(ChatReply(text="<think>hm</think>\n\nyes", usage=Usage(prompt=1))))

    return handler


def test_parameters_that_are_refused_are_left_out_from_then_on() -> None:
    bodies: list[dict[str, Any]] = []
    refusals = {
        "temperature": "Unsupported value: 'temperature' does not support 0 with this model.",
        "max_tokens": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
        "seed": "Unsupported parameter: 'seed' is not supported with this model.",
    }
    request = hello(temperature=0.0, max_tokens=99, seed=7, effort="low")

    async def twice(url: str) -> list[ChatReply]:
        model = OpenAIChat("vllm:x", "x", url=f"{url}/v1", key_name="NO_KEY", key_needed=False)
        replies = [await model.chat(request), await model.chat(request)]
        await model.close()
        return replies

    with served("/v1/chat/completions", picky(refusals, bodies)) as url:
        replies = asyncio.run(twice(url))
    assert [reply.text for reply in replies] == ["yes", "yes"]
    assert len(bodies) == 3 + 1 + 1, "one more for each that was refused, and never again"
    wanted = {"model", "messages", "max_completion_tokens", "reasoning_effort"}
    assert bodies[-1].keys() == bodies[-2].keys() == wanted
    assert bodies[-1]["max_completion_tokens"] == 99
    assert bodies[-1]["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"error": {"message": "Unrecognized request argument supplied: seed", "param": None}}, "seed"),
        ({"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs"}]}, "seed"),
        ({"error": {"message": "temperature is not supported with this model"}}, "temperature"),
        ({"error": {"message": "Invalid value for temperature: 5 is above 2"}}, ""),
        ({"error": {"message": "Unsupported image", "param": "messages"}}, ""),
    ],
)
def test_a_refused_parameter_is_told_from_a_wrong_one(said: Any, name: str) -> None:
    assert refused_parameter(400, said, ["temperature", "seed"]) == name


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("<think>a\nb</think>\nyes", "yes"),
        ("left over from the template</think>\n\nyes", "yes"),
        ("<think>cut off in the mid", ""),
        ("yes, <think> is a tag", "yes, <think> is a tag"),
    ],
)
def test_thinking_is_taken_off(raw: str, kept: str) -> None:
    assert answer(raw) == kept


# What an answer that is no reply means


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (401, {"error": {"message": "no"}}, "FatalError"),
        (403, {"error": {"message": "no"}}, "FatalError"),
        (404, {"error": {"message": "no such model"}}, "FatalError"),
        (400, {"error": {"message": "bad request"}}, "FatalError"),
        (400, {"error": {"message": "max_tokens is too large: 99999. This model supports 16384"}}, "FatalError"),
        (400, {"error": {"message": "The maximum tokens you requested exceeds the model limit."}}, "FatalError"),
        (429, {"error": {"message": "pay first", "code": "insufficient_quota"}}, "FatalError"),
        (400, {"error": {"message": "x", "code": "content_filter"}}, "RefusedError"),
        (400, {"error": {"message": "prompt is too long: 210000 tokens"}}, "RefusedError"),
        (413, b"too large", "RefusedError"),
        (408, b"", "TransientError"),
        (409, b"", "TransientError"),
        (425, b"", "TransientError"),
        (429, b"", "TransientError"),
        (500, b"", "TransientError"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "TransientError"),
    ],
)  # fmt: skip
def test_only_what_can_heal_is_tried_again(status: int, said: Any, kind: str) -> None:
    assert type(classify(status, {}, said, "here")).__name__ == kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"Retry-After": "2"}, 2), ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25), ({"Retry-After": "soon"}, None)],
)
def test_retry_after_is_read_in_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_an_http_date_is_a_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    assert retry_after({"Retry-After": formatdate(1_700_000_030, usegmt=True)}) == 30


@pytest.mark.parametrize("provider", [pytest.param("anthropic", marks=pytest.mark.extras), "azure", "vllm"])
def test_a_wrong_key_and_a_missing_model_end_the_run_at_once(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "wrong-key-of-a-test")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "wrong-key-of-a-test")
    servers: dict[str, tuple[str, Callable[[str], Handler]]] = {
        "anthropic": ("/v1/messages", AnthropicServer),
        "azure": (AzureServer.PATH, AzureServer),
        "vllm": ("/chat/completions", _only),
    }
    path, server = servers[provider]
    for key, words in (("right-key-of-a-test", "401"), ("wrong-key-of-a-test", "404")):
        asked, answer = [], server(key)

        async def counted(http: web.Request, answer: Handler = answer, asked: list[str] = asked) -> web.StreamResponse:
            asked.append(http.path)
            return await answer(http)

        with served(path, counted) as url:
            model = [f"models.target_model={provider}:none", f"models.target_url={url}"]
            with pytest.raises(FatalError, match=words) as caught:
                train_sim(tmp_path / words, *SMALL, *model, "hardware.workers=4")
        assert asked
        assert len(asked) <= 4, "nothing is sent after the first answer"
        assert "wrong-key-of-a-test" not in str(caught.value)


def _only(key: str) -> Handler:
    async def handler(http: web.Request) -> web.StreamResponse:
        if key == "right-key-of-a-test":
            return web.json_response({"error": {"message": "no"}}, status=401)
        return web.json_response({"error": {"message": "The model `none` does not exist"}}, status=404)

    return handler


def test_a_refusal_for_the_items_sake_is_told_as_such() -> None:
    async def refuses(http: web.Request) -> web.StreamResponse:
        return web.json_response(completion(ChatReply(text="", finish_reason="content_filter")))

    with served("/v1/chat/completions", refuses) as url, pytest.raises(RefusedError, match="content filter"):
        chat(OpenAIChat("vllm:x", "x", url=f"{url}/v1", key_name="NO_KEY", key_needed=False), hello())


def test_one_item_that_is_too_long_for_llama_server_is_set_aside_and_the_run_ends_well(tmp_path: Path) -> None:
    model = SimulatedModel("sim:world", SimOptions(duds=0.3))

    async def small_context(http: web.Request) -> web.StreamResponse:
        body = await http.json()
        if "Val ticket 3." in str(body["messages"][-1]["content"]):
            words = "the request exceeds the available context size (4096 tokens), try increasing it"
            error = {"code": 400, "message": words, "type": "exceed_context_size_error", "n_ctx": 4096}
            return web.json_response({"error": error}, status=400)
        return web.json_response(completion(await model.chat(request_of(body))))

    with served("/v1/chat/completions", small_context) as url:
        command = ["train", "--config", str(SIM), *over_http(f"{url}/v1"), *SMALL, f"env.output_root={tmp_path}"]
        done = skillopt(*command)
    assert done.returncode == 0, done.stderr
    (summary,) = tmp_path.rglob("summary.json")
    assert list(json.loads(summary.read_text())["set_aside"]) == ["val-003"]


# Rough weather over a real connection


@pytest.mark.slow
def test_an_endpoint_that_asks_for_a_longer_wait_than_allowed_stops_the_run_at_once(tmp_path: Path) -> None:
    asked = []

    async def closed(http: web.Request) -> web.StreamResponse:
        asked.append(http.path)
        headers = {"Retry-After": "3600"}
        return web.json_response({"error": {"message": "come back later"}}, status=429, headers=headers)

    with served("/v1/chat/completions", closed) as url:
        options = [*over_http(f"{url}/v1"), *SMALL, f"env.output_root={tmp_path}", "hardware.max_retry_seconds=5"]
        command = [sys.executable, "-m", "skillopt.cli", "train", "--config", str(SIM), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trainer:
            try:
                _, said = trainer.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                trainer.kill()
                pytest.fail(f"after 120 s it still waits; {len(asked)} requests were sent")
    assert trainer.returncode == 3
    assert "asks to wait 3600 s, longer than hardware.max_retry_seconds (5)" in said
    assert len(asked) <= 8, "none is sent after the first answers"


@pytest.mark.slow
def test_hangs_resets_and_errors_at_once_change_neither_skill_nor_scores(tmp_path: Path) -> None:
    clean = train_sim(tmp_path / "clean", *SMALL)
    storm = SimOptions(duds=0.35, hang=0.05, reset=0.05, server_error=0.05)
    with sim_server(storm) as (server, url):
        rough = train_sim(tmp_path / "rough", *over_http(url), *SMALL, "hardware.call_timeout=0.5")
    assert server.requests.total() > 1.1 * (clean.summary["calls"]["target"] + clean.summary["calls"]["optimizer"])
    assert differing(essence(RunDirectory(clean.path)), essence(RunDirectory(rough.path))) == []


@pytest.mark.slow
def test_every_fifth_turned_away_costs_a_quarter_more_requests_and_nothing_else(tmp_path: Path) -> None:
    with sim_server(SimOptions(duds=0.35)) as (server, url):
        clean = train_sim(tmp_path / "clean", *over_http(url), *SMALL)
        paid = server.requests.total()
    with sim_server(SimOptions(duds=0.35, rate_limit_every=5, retry_after=0.1)) as (server, url):
        rough = train_sim(tmp_path / "rough", *over_http(url), *SMALL)
        assert server.turned_away > 0.15 * paid
        assert server.requests.total() <= 1.3 * paid
    assert differing(essence(RunDirectory(clean.path)), essence(RunDirectory(rough.path))) == []


def test_connections_are_used_again(tmp_path: Path) -> None:
    connections = set()

    async def answer(http: web.Request) -> web.StreamResponse:
        assert http.transport
        connections.add(http.transport.get_extra_info("peername"))
        return web.json_response(completion(ChatReply(text="yes")))

    async def run(url: str, journal: Journal) -> None:
        model = OpenAIChat("vllm:x", "x", url=f"{url}/v1", key_name="NO_KEY", key_needed=False)
        await ask_all(caller(model, 4, journal), 40)
        await model.close()

    with served("/v1/chat/completions", answer) as url, Journal(tmp_path / "j") as journal:
        asyncio.run(run(url, journal))
    assert len(connections) <= 4


@pytest.mark.slow
def test_the_second_ctrl_c_leaves_now_and_the_first_says_what_it_waits_for(tmp_path: Path) -> None:
    with sim_server(SimOptions(hang=1.0)) as (server, url):
        command = [sys.executable, "-m", "skillopt.cli", "train", "--config", str(SIM), *over_http(url)]
        command += ["hardware.call_timeout=100000"]
        process = subprocess.Popen(
            [*command, f"env.output_root={tmp_path}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        until(lambda: server.requests.total() == 8)
        process.send_signal(signal.SIGINT)
        assert process.stdout
        said = next(line for line in process.stdout if line.startswith("Stopping"))
        assert process.poll() is None, "calls in flight are waited for"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "Stopping: the replies to 8 calls in flight will still be stored; press Ctrl-C again to stop at once" in said
    assert "Traceback" not in errors


# Keys


def files_with(mark: str, root: Path) -> list[str]:
    found = [path for path in root.rglob("*") if path.is_file() and mark.encode() in path.read_bytes()]
    return [str(path.relative_to(root)) for path in found]


@pytest.mark.extras
def test_no_key_is_left_anywhere_by_a_run_or_its_failures(tmp_path: Path) -> None:
    env = {"VLLM_API_KEY": f"{MARK}-vllm", "ANTHROPIC_API_KEY": f"{MARK}-anthropic", "PYTHONFAULTHANDLER": "1"}
    told = []

    async def repeats_the_key(http: web.Request) -> web.StreamResponse:
        key = http.headers["Authorization"].removeprefix("Bearer ")
        return web.json_response({"error": {"message": f"Incorrect API key provided: {key}."}}, status=401)

    def run(url: str, target: str, *more: str) -> int:
        done = skillopt_process(
            "train", "--config", "configs/sim/default.yaml", *SMALL, f"env.output_root={tmp_path}/out-{len(told)}",
            f"models.target_model={target}", f"models.target_url={url}", *more, env=env,
        )  # fmt: skip
        told.append(done.stdout + done.stderr)
        return done.returncode

    with sim_server(api_key=f"{MARK}-vllm") as (_, url):
        assert run(url, "vllm:sim") == 0, told[-1]
        assert run(url, "vllm:sim", "budget.max_calls=20") == 3
    with sim_server(SimOptions(server_error=1.0)) as (_, url):
        assert run(url, "vllm:sim", "hardware.max_retries=0") == 3
    with served("/v1/chat/completions", repeats_the_key) as url:
        assert run(f"{url}/v1", "vllm:sim") == 2
        assert "401: Incorrect API key provided: ***." in told[-1]
    with served("/v1/messages", AnthropicServer("another")) as url:
        assert run(url, "anthropic:claude-test") == 2
        assert "401" in told[-1]
    assert all("Traceback" not in text for text in told)
    assert [text for text in told if MARK in text] == []
    assert files_with(MARK, tmp_path) == []
    assert files_with("seed", tmp_path), "the search finds what is there"


@pytest.mark.parametrize(
    "tree",
    [
        {"models": {"target_key_name": "sk-proj-abcdefghijklmnop1234"}},
        {"models": {"target_key_name": "my key"}},
        {"models": {"target_url": "https://host/v1?api_key=abcdefgh12345678"}},
        {"hardware": {"azure_endpoint": "0123456789abcdef0123456789abcdef"}},
        {"env": {"options": {"headers": ["Bearer abcdefghijklmnop1234"]}}},
        {"notes": {"schedule": "AIzaSyA1234567890abcdefghijklmnopqrstuv"}},
        {"models": {"target_model": "openai:gpt", "target_url": "https://host/value-of-a-secret-here"}},
    ],
)
def test_a_key_in_a_config_is_refused_and_not_repeated(tree: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-of-a-secret-here")
    with pytest.raises(UserError) as caught:
        Config.parse(tree)
    value = json.dumps(tree).split('"')[-2]
    assert value not in str(caught.value)
    assert "environment" in str(caught.value)


def test_what_only_resembles_a_key_is_let_through() -> None:
    Config.parse(
        {
            "models": {"target_key_name": "MY_OPENAI_KEY", "target_url": "http://127.0.0.1:8000/v1"},
            "env": {"split_dir": "data/task-sk-1/v2", "options": {"sha256": "a" * 64}},
        }
    )


@pytest.mark.parametrize(
    ("models", "hardware", "message"),
    [
        ({"target_model": "azure:x"}, {}, "no endpoint; set hardware.azure_endpoint"),
        ({"target_model": "vllm:x"}, {}, "no URL; set hardware.vllm_url"),
        ({"target_model": "vllm:x", "target_url": "http://"}, {}, "is not a URL"),
        ({"target_model": "openai:x", "target_url": "localhost:8000"}, {}, "is not a URL"),
        ({"target_model": "openai:x", "target_key_name": "NOT_THERE"}, {}, "set NOT_THERE in the environment"),
        pytest.param({"target_model": "anthropic:x"}, {}, "ANTHROPIC_API_KEY", marks=pytest.mark.extras),
        pytest.param(
            {"target_model": "anthropic:x", "target_key_name": "NOT_THERE"},
            {},
            "set NOT_THERE in the environment",
            marks=pytest.mark.extras,
        ),
        (
            {"target_model": "antropic:x"},
            {},
            "must have the form provider:model with a known provider; the providers are: agent, anthropic",
        ),
    ],
)
def test_what_is_missing_is_named_before_anything_is_sent(
    models: dict[str, str], hardware: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match=message):
        open_model("target", Config.parse({"models": models, "hardware": hardware}))


def test_the_example_file_lists_the_keys_that_the_providers_read() -> None:
    listed = (REPO / ".env.example").read_text()
    for name in (
        "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "VLLM_API_KEY", "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "OPENROUTER_API_KEY", "AWS_ACCESS_KEY_ID",
    ):  # fmt: skip
        assert f"{name}=" in listed


def test_a_schema_goes_out_by_its_stages_name_on_the_fast_client() -> None:
    bodies: list[dict[str, Any]] = []
    with served("/v1/chat/completions", picky({}, bodies)) as url:
        model = OpenAIChat("vllm:x", "x", url=f"{url}/v1", key_name="NO_KEY", key_needed=False)
        chat(model, hello(schema=Schema(name="reflect", body={"type": "object"})))
    assert bodies[0]["response_format"]["json_schema"]["name"] == "reflect"
