"""JSON in a model's reply: what was meant is found whatever stands around it, and nothing else is taken for it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from skillopt.models.base import ChatReply
from skillopt.models.openai_chat import answer
from skillopt.models.structured import parse, without_thinking

pytestmark = pytest.mark.fuzz

keys = st.sampled_from(["edits", "patterns", "op", "text", "guidance", "a}", '"', "{", "\\"])
sane = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), hostile.words)
objects = st.dictionaries(keys, hostile.values(keys, sane), max_size=4)
PROSE = [
    "",
    "Sure:\n",
    "```json\n",
    "```",
    "\n\nDone. ",
    "I think, therefore.",
    "</think>",
    "a, b, ] and )",
    '"quoted" ',
]
shards = st.lists(st.one_of(st.sampled_from(['{"a": 1}', "{}", '{"a', "],", ",}", *PROSE]), hostile.words), max_size=8)


@holds_for(objects, st.sampled_from(PROSE), st.sampled_from(PROSE), st.booleans())
def test_an_object_is_found_as_it_was_meant_whatever_stands_around_it(
    value: dict[str, Any], before: str, after: str, indent: bool
) -> None:
    text = json.dumps(value, indent=2 if indent else None)
    after = after.replace("</think>", "")  # what comes before the end of a thought is a thought
    if "think>" in text and before not in {"", "```json\n"}:
        return  # behind other words nobody can tell a tag that is meant from one that is spoken of
    assert parse(ChatReply(text=before + text + after)) == value


@holds_for(objects, st.sampled_from([",", " ,", ",\n "]))
def test_a_comma_too_many_changes_nothing_within_texts(value: dict[str, Any], comma: str) -> None:
    text = json.dumps(value)
    if value:
        assert parse(ChatReply(text=text[:-1] + comma + "}")) == value


@holds_for(objects, st.integers(1, 200))
def test_an_object_that_was_cut_off_is_never_used(value: dict[str, Any], cut: int) -> None:
    text = json.dumps(value)
    short = text[: max(1, len(text) - cut)]
    try:
        found = parse(ChatReply(text=short))
    except (ValueError, RecursionError):
        return
    raise AssertionError(f"{found!r} was made of {short!r}")


@holds_for(st.one_of(shards.map("".join), hostile.texts))
def test_any_reply_is_a_value_or_is_lost_with_a_reason(text: str) -> None:
    try:
        parse(ChatReply(text=text))
    except (ValueError, RecursionError) as error:
        assert str(error)  # noqa: PT017
    else:
        assert "{" in text or json.loads(without_thinking(text).strip()) is not Ellipsis


@holds_for(hostile.depths, st.sampled_from(["[]", "{}"]), st.sampled_from(["%s", "Here: %s.", '{"a": %s,}', "%s %s"]))
def test_a_reply_nested_without_end_is_a_value_or_is_lost(depth: int, shape: str, form: str) -> None:
    text = form.replace("%s", hostile.deep(depth, "1", shape))
    try:
        parse(ChatReply(text=text))
    except (ValueError, RecursionError):
        return


TAGS = ["<think>", "</think>", "<Thinking>", "</thinking>", "<reasoning>", "</REASONING>", "{", "x", "\n"]


@holds_for(st.lists(st.sampled_from(TAGS), max_size=12).map("".join))
def test_thoughts_are_taken_off_as_their_plainest_definition_does(text: str) -> None:
    whole = re.sub(r"(?si)<(think|thinking|reasoning)>.*?</\1>", "", text)
    whole = re.sub(r"(?si)\A.*</(?:think|thinking|reasoning)>", "", whole)
    if re.match(r"\s*\{", text):
        whole = text
    assert without_thinking(text) == ("" if re.match(r"(?i)\s*<(think|thinking|reasoning)>", whole) else whole)


@holds_for(hostile.texts, hostile.texts)
def test_thinking_is_no_part_of_an_answer(thought: str, said: str) -> None:
    if "think>" not in thought + said:
        said = said.encode("utf-8", "replace").decode()
        assert answer(f"<think>{thought}</think>{said}") == said.lstrip()
        assert answer(f"<think>{thought}") == ""
