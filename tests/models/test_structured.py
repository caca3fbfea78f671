"""Replies of real models: thinking, prose, fences, cuts, silence, and endpoints that refuse a schema."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from skillopt.models.base import ChatReply, Schema, TransientError
from skillopt.models.call import Caller
from skillopt.models.structured import CheckedReply, FlawedReplyError, ask, parse, without_thinking
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.sim.model import SimOptions
from skillopt.sync import run_sync
from support import Spy, differing, essence, over_http, sim_server, train_sim

VALUE = {"patterns": [], "edits": [{"op": "add", "text": 'Say "{x}" and\nthink, then }.'}]}
JSON = json.dumps(VALUE)


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        f"  {JSON}\n",
        f"```json\n{JSON}\n```",
        f"Sure, here it is:\n```\n{JSON}\n```\nAnything else?",
        f"The edits are {JSON} as asked.",
        f"From {{a, b}} follows: {JSON}",
        f"<think>Is {{this}} right? Let me see: {JSON[:40]}</think>\n{JSON}",
        f"I reason without an opening tag.</think>{JSON}",
        JSON.replace("]}", "],}"),
        json.dumps(VALUE, indent=2).replace("\\n", "\n"),
    ],
)
def test_an_object_is_found_whatever_stands_around_it(text: str) -> None:
    assert parse(ChatReply(text=text)) == VALUE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("<think>I am still thinking about {x}", "empty"),
        (JSON[:-1], "cut off"),
        (JSON[: len(JSON) // 2], "cut off"),
        (f"```json\n{JSON[:-2]}\n```", "cut off"),
        ("I propose no edits.", "not valid JSON"),
        (f"{JSON}\n{JSON}", "more than one object"),
        ("{edits: [none]}", "not valid JSON"),
    ],
)
def test_what_is_cut_off_empty_or_ambiguous_is_never_used(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(ChatReply(text=text))


def test_a_reply_that_ended_at_the_token_limit_is_not_used_even_if_it_can_be_read() -> None:
    with pytest.raises(ValueError, match="cut off at the token limit"):
        parse(ChatReply(text=JSON, finish_reason="length"))


def test_thoughts_are_no_reply() -> None:
    assert without_thinking("<think>a</think>b<thinking>c</thinking>d") == "bd"


def asked(*replies: str | Exception) -> tuple[CheckedReply[int], list[list[dict[str, Any]]]]:
    """What comes of replies, given in their order to a question for an even number; and what was sent."""
    sent: list[list[dict[str, Any]]] = []
    left = list(replies)

    class Optimizer:
        form = "schema"

        async def __call__(self, messages: list[dict[str, Any]], **named: Any) -> ChatReply:
            sent.append(messages)
            reply = left.pop(0)
            if isinstance(reply, Exception):
                raise reply
            return ChatReply(text=reply)

    def even(value: Any) -> int:
        if value["number"] % 2:
            raise FlawedReplyError(f"{value['number']} is odd", value["number"])
        return int(value["number"])

    question = [{"role": "user", "content": "An even number?"}]
    found = run_sync(ask(cast("Caller", Optimizer()), question, Schema(name="number", body={}), even, label="x"))
    return found, sent


def test_a_flawed_reply_is_asked_for_again_with_all_of_it_and_what_is_wrong() -> None:
    long = json.dumps({"number": 3, "reason": "because " * 2000})
    found, sent = asked(long, '{"number": 4}')
    assert found == CheckedReply(value=4)
    assert sent[1][1] == {"role": "assistant", "content": long}
    assert "3 is odd" in sent[1][2]["content"]


@pytest.mark.parametrize(
    ("second", "value"), [('{"number": 5}', 5), ("no", 3), (TransientError("down"), 3)], ids=["flawed", "bad", "none"]
)
def test_a_flawed_reply_counts_where_nothing_better_comes(second: str | Exception, value: int) -> None:
    found, _ = asked('{"number": 3}', second)
    assert (found.value, found.lost) == (value, "")


def test_a_flawed_second_reply_counts_where_the_first_could_not_be_read() -> None:
    found, _ = asked("no", '{"number": 3}')
    assert (found.value, found.lost, len(found.unusable)) == (3, "", 1)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return RunDirectory(train_sim(tmp_path_factory.mktemp("clean"), *LETTERS, SURE).path)


FEW = "env.options={rules: 20, train: 24, val: 20, test: 20}"
LONG = ("train.num_epochs=2", "gradient.minibatch_size=1", "optimizer.learning_rate=1.6")
"""Many letters, so that a share of them can be lost."""
LETTERS = (*LONG, "train.batch_size=6", FEW)
SURE = "models.optimizer_model=sim:world"
"""An optimizer that makes no mistakes, so that runs differ by lost replies alone."""


@pytest.fixture(scope="module")
def long_clean(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return RunDirectory(train_sim(tmp_path_factory.mktemp("long"), *LONG, SURE).path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["malformed", "cut_off", "empty"])
def test_a_tenth_of_broken_replies_costs_few_calls_and_hardly_any_score(
    long_clean: RunDirectory, tmp_path: Path, fault: str
) -> None:
    faulty = train_sim(tmp_path, *LONG, f"{SURE}?{fault}=0.1")
    whole = read_json(long_clean.summary)
    assert faulty.summary["best"]["val"] == pytest.approx(whole["best"]["val"], abs=0.101)
    assert faulty.summary["best"]["test"] == pytest.approx(whole["best"]["test"], abs=0.101)
    assert whole["calls"]["optimizer"] < faulty.summary["calls"]["optimizer"] <= 1.3 * whole["calls"]["optimizer"]
    history = read_json(RunDirectory(faulty.path).history)
    unusable = [problem for record in history for problem in record["edits"]["unusable_replies"]]
    lost = sum(len(record["edits"]["lost_replies"]) for record in history)
    for record in history:
        for stage in ("slow_update", "meta_skill"):
            replies = record.get("epoch_end", {}).get(stage, {}).get("unusable", [])
            unusable += replies
            lost += len(replies) == 2
    run = RunDirectory(faulty.path)
    with sqlite3.connect(run.journal) as journal:
        ((second_tries,),) = journal.execute("select count(*) from replies where role = 'optimizer' and attempt = 2")
    assert second_tries > 0
    assert len(unusable) == second_tries + lost, "every reply that could not be used is in the history"


def test_a_reply_lost_twice_is_counted_and_shown(tmp_path: Path) -> None:
    result = train_sim(tmp_path, "train.num_epochs=1", f"{SURE}?empty=1")
    history = read_json(RunDirectory(result.path).history)
    first = history[0]["edits"]
    assert set(first["lost_replies"]) == {"it was empty"}
    assert len(first["unusable_replies"]) == 2 * len(first["lost_replies"])


def test_the_second_try_names_what_was_wrong(tmp_path: Path) -> None:
    spy = Spy("sim:world?malformed=0.5")
    train_sim(tmp_path, "train.num_epochs=1", models={"optimizer": spy})
    again = [r for r in spy.requests if "could not be used: it is not valid JSON" in str(r.messages[-1]["content"])]
    assert again


def test_wrapped_replies_need_no_second_try(clean: RunDirectory, tmp_path: Path) -> None:
    wrapped = train_sim(tmp_path, *LETTERS, f"{SURE}?wrapped=1")
    assert differing(essence(clean), essence(RunDirectory(wrapped.path))) == []


@pytest.mark.parametrize(("refused", "forms"), [pytest.param(1, {"json"}, marks=pytest.mark.slow), (2, {"text"})])
def test_an_endpoint_that_refuses_a_schema_is_asked_in_another_form(
    clean: RunDirectory, tmp_path: Path, refused: int, forms: set[str]
) -> None:
    with sim_server(SimOptions(no_schema=refused)) as (server, url):
        remote = train_sim(tmp_path, *LETTERS, *over_http(url))
    assert remote.summary["best"]["val"] == read_json(clean.summary)["best"]["val"]
    sent = [json.loads(body) for body in server.requests]
    asked = [body for body in sent if 'JSON schema, "reflect"' in body["messages"][-1]["content"]]
    kinds = {body.get("response_format", {}).get("type", "text").removesuffix("_object") for body in asked}
    assert forms <= kinds
    refusals = sum(body.get("response_format", {}).get("type") == "json_schema" for body in sent)
    assert 0 < refusals <= 16, "the refusal is remembered"


def test_a_refused_form_is_not_paid_for(tmp_path: Path) -> None:
    spy = Spy("sim:world?no_schema=2")
    result = train_sim(tmp_path, "train.num_epochs=1", models={"optimizer": spy})
    answered = [r for r in spy.requests if r.schema and r.schema.form == "text"]
    assert result.summary["calls"]["optimizer"] == len(answered)
    assert result.summary["best"]["val"] > result.summary["initial"]["val"]
