"""`local:` models with a real one, the smallest there is: it shows the plumbing, not the wit."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillopt.errors import SkillOptError, UserError
from skillopt.models import weights
from skillopt.models.base import ChatReply, ChatRequest, FatalError, RefusedError, Schema, TransientError
from skillopt.models.local import MAX_CRASHES, LocalModel
from support import until

NAME = "smollm2-135m"
SKILL = "You sort tickets.\n" + "\n".join(f"- Rule {i}: topic {i} goes to team {i}." for i in range(4))


@pytest.fixture(scope="module")
def file() -> Path:
    try:
        return weights.resolve(NAME)
    except SkillOptError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"needs the weights of {NAME}: `skillopt models pull {NAME}` fetches them ({error})")


@pytest.fixture(scope="module")
def model(file: Path) -> Iterator[LocalModel]:
    model = LocalModel(f"local:{NAME}", workers=2, context=1024)
    yield model
    asyncio.run(model.close())


def request(user: str, system: str | None = SKILL, **more: object) -> ChatRequest:
    messages = [{"role": "user", "content": user}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return ChatRequest(messages=tuple(messages), **{"max_tokens": 5, "temperature": 0.0, **more})  # type: ignore[arg-type]


def ask(model: LocalModel, *requests: ChatRequest) -> list[ChatReply]:
    async def all_at_once() -> list[ChatReply]:
        return await asyncio.gather(*(model.chat(each) for each in requests))

    return asyncio.run(all_at_once())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.real_model
def test_a_reply_says_its_tokens_and_that_it_was_cut_off(model: LocalModel) -> None:
    cut, whole = ask(model, request("Name a fruit. \ud83d", max_tokens=3), request("Say: ok", None, max_tokens=200))
    assert cut.text
    assert (cut.finish_reason, cut.usage.completion) == ("length", 3)
    assert 0 < cut.usage.cached < cut.usage.prompt
    assert (whole.finish_reason, whole.usage.cached) == ("stop", 0)


@pytest.mark.real_model
def test_the_same_request_gives_the_same_reply_in_any_order_on_any_worker(file: Path) -> None:
    openings = ["Refund order {}", "The app crashes {} times", "Refund order {}, and quickly", "\n\n{}?", "~ {}"]
    requests = []
    for i in range(15):
        skill = SKILL if i % 3 else "Answer in one word."
        each = request(openings[i % 5].format(i), skill, temperature=i % 2 * 0.9, seed=i, max_tokens=4)
        if i % 4 == 0:
            turns = ({"role": "assistant", "content": "Which?"}, {"role": "user", "content": f"The {i}th."})
            each = ChatRequest(messages=each.messages + turns * (1 + i // 8), max_tokens=4, temperature=0.0)
        requests.append(each)

    def replies(order: list[int], workers: int) -> list[ChatReply]:
        model = LocalModel(NAME, workers=workers, context=1024)
        found = dict(zip(order, ask(model, *(requests[i] for i in order)), strict=True))
        asyncio.run(model.close())
        return [found[i] for i in range(len(requests))]

    order = list(range(len(requests)))
    first = replies(order, workers=2)
    random.Random(3).shuffle(order)
    assert replies(order, workers=1) == first
    assert all(reply.usage.cached > 0 for reply in first)


@pytest.mark.real_model
def test_a_schema_binds_the_reply(model: LocalModel) -> None:
    body = {
        "type": "object",
        "properties": {"op": {"enum": ["add", "delete"]}, "count": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["op", "count"],
        "additionalProperties": False,
    }
    [reply] = ask(model, request("Propose an edit.", schema=Schema(name="edit", body=body), max_tokens=60))
    value = json.loads(reply.text)
    assert value["op"] in {"add", "delete"}
    assert value["count"] in range(10)


@pytest.mark.real_model
def test_a_seed_repeats_its_sample_and_another_seed_draws_another(model: LocalModel) -> None:
    def sample(seed: int) -> ChatRequest:
        return request("Tell me a story.", temperature=1.5, seed=seed, max_tokens=8)

    texts = [reply.text for reply in ask(model, *(sample(seed) for seed in (1, 2, 3, 1, 2, 3)))]
    assert texts[:3] == texts[3:]
    assert len(set(texts)) > 1


@pytest.mark.real_model
def test_a_prompt_longer_than_the_context_is_refused_and_the_next_one_answered(model: LocalModel) -> None:
    with pytest.raises(RefusedError, match="1024"):
        ask(model, request("word " * 1200))
    assert ask(model, request("Hello"))[0].usage.completion > 0


@pytest.mark.real_model
def test_a_killed_worker_is_started_again_but_not_for_ever(file: Path) -> None:
    model = LocalModel(NAME, workers=1, context=1024)
    ask(model, request("Hello"))
    [first] = model.pids

    async def chat_and_kill() -> None:
        task = asyncio.create_task(model.chat(request("Tell me a story.", max_tokens=900)))
        await asyncio.to_thread(until, lambda: model.pids)
        await asyncio.sleep(0.3)
        os.kill(model.pids[0], signal.SIGKILL)
        await task

    with pytest.raises(TransientError, match="SIGKILL"):
        asyncio.run(chat_and_kill())
    assert ask(model, request("Hello"))[0].text
    assert model.pids != [first]
    for _ in range(MAX_CRASHES - 1):
        with pytest.raises(TransientError):
            asyncio.run(chat_and_kill())
    with pytest.raises(FatalError, match="in a row"):
        asyncio.run(chat_and_kill())
    asyncio.run(model.close())


@pytest.mark.real_model
def test_closing_in_the_middle_of_a_reply_leaves_no_process(file: Path) -> None:
    async def scenario() -> list[int]:
        model = LocalModel(NAME, workers=2, context=1024)
        tasks = [asyncio.create_task(model.chat(request("Story!", max_tokens=900))) for _ in range(3)]
        await asyncio.to_thread(until, lambda: len(model.pids) == 2)
        pids = model.pids
        await model.close()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, FatalError)
        with pytest.raises(FatalError, match="closed"):
            await model.chat(request("Hello"))
        return pids

    assert not any(alive(pid) for pid in asyncio.run(scenario()))


@pytest.mark.real_model
def test_workers_end_with_their_parent_and_llama_cpp_prints_nothing(file: Path, tmp_path: Path) -> None:
    script = f"""
        import asyncio, sys, time
        from skillopt.models.base import ChatRequest
        from skillopt.models.local import LocalModel
        model = LocalModel({NAME!r}, workers=1)
        messages = ({{"role": "system", "content": "Hi"}}, {{"role": "user", "content": "Hello"}})
        asyncio.run(model.chat(ChatRequest(messages=messages, max_tokens=2)))
        print(model.pids[0], flush=True)
        asyncio.run(model.chat(ChatRequest(messages=messages, max_tokens=5000)))
    """
    source = Path(weights.__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(source), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert parent.stdout is not None
    line = parent.stdout.readline()
    assert line.strip().isdigit(), line
    assert list(tmp_path.iterdir())
    parent.send_signal(signal.SIGKILL)
    rest, _ = parent.communicate()
    assert rest == ""
    until(lambda: not alive(int(line)))
    until(lambda: not list(tmp_path.iterdir()))


@pytest.mark.real_model
def test_a_file_of_ones_own_is_known_by_its_hash(file: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    own.symlink_to(file)
    model = LocalModel(f"local:{own}", workers=1, context=256)
    assert model.name == f"local:{own}"
    assert model.endpoint == LocalModel(NAME).endpoint == f"local:{weights.entry(NAME).sha256}"
    assert ask(model, request("Hello", None, max_tokens=1))[0].usage.completion == 1
    asyncio.run(model.close())


@pytest.mark.real_model
def test_a_file_that_is_no_model_is_a_fatal_error_that_says_why(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install 'skillopt[local]'")
    bad = tmp_path / "bad.gguf"
    bad.write_text("no model")
    model = LocalModel(f"local:{bad}", workers=1)
    with pytest.raises(FatalError, match="model"):
        ask(model, request("Hello"))
    asyncio.run(model.close())


@pytest.mark.real_model
def test_what_is_missing_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=NAME):
        LocalModel("local:no-such-model")
    with pytest.raises(UserError, match="no such file"):
        LocalModel(f"local:{tmp_path}/none.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'skillopt\[local\]'"):
        LocalModel(f"local:{NAME}")
