"""Structured replies: sends a schema, and returns a checked value or the reason why there is none.

An endpoint that refuses a JSON schema is asked in JSON mode. If it refuses JSON mode, too, it is asked in plain text,
with the schema in the message. Thinking, prose and code fences around the object are removed. A reply that was cut off
is never used, even if it could be parsed.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from skillopt.models.base import ChatReply, Form, FormRefusedError, Message, RefusedError, Schema, TransientError
from skillopt.models.call import Caller

T = TypeVar("T")
LONGEST_BAD_REPLY = 4000
"""The maximum number of characters that are quoted of an unusable reply when the optimizer is asked once more."""
LONGEST_PROBLEM = 6000
"""The maximum number of characters of the sentence that describes a partly usable reply."""
QUOTED = 160
"""The maximum number of characters of an unusable reply that a message quotes."""
NEXT_FORM: dict[Form, Form] = {"schema": "json", "json": "text"}
_THOUGHT_TAG = re.compile(r"<(/?)(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_OPEN = re.compile(r"\A\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_BEGINS_WITH_OBJECT = re.compile(r"\s*(?:```\w*\s*)?\{")
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class FlawedReplyError(ValueError):
    """Only a part of the reply can be used; `value` is this part. The optimizer is asked once more. If it gives no
    better reply, `value` is used."""

    def __init__(self, problem: str, value: object) -> None:
        super().__init__(problem)
        self.value = value


@dataclass(frozen=True, kw_only=True)
class CheckedReply(Generic[T]):
    """The result of a request. If `value` is None, `lost` says why; lost replies are counted and shown."""

    value: T | None = None
    lost: str = ""
    unreachable: bool = False
    """True if the endpoint failed; False if the model replied, but its reply was unusable."""
    unusable: tuple[str, ...] = ()
    """The problem of each unusable reply that was paid for, even if the second reply was usable."""


async def ask(
    optimizer: Caller, messages: list[Message], schema: Schema, check: Callable[[Any], T], *, label: str
) -> CheckedReply[T]:
    """Ask the optimizer. If its reply does not fit, tell it why and ask once more. `check` returns the value or raises
    ValueError."""
    problems: list[str] = []
    quoted: list[str] = []
    answer = ""
    flawed: T | None = None
    for attempt in (1, 2):
        sent = messages
        if problems:
            note = f"Your last reply could not be used: {problems[-1]}. Reply again with the JSON object alone."
            sent = [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": note}]
        try:
            reply = await _call(optimizer, sent, schema, label=label, attempt=attempt)
        except (TransientError, RefusedError) as error:
            if flawed is not None:
                break
            unreachable = isinstance(error, TransientError)
            return CheckedReply(lost=str(error), unreachable=unreachable, unusable=tuple(quoted))
        try:
            return CheckedReply(value=check(parse(reply)), unusable=tuple(quoted))
        except FlawedReplyError as error:
            flawed = cast(T, error.value)
            problems.append(str(error)[:LONGEST_PROBLEM])
            answer = reply.text  # the whole reply must be written again
        except (ValueError, RecursionError) as error:
            problems.append(str(error)[:200] or type(error).__name__)
            quoted.append(_with_reply(problems[-1], reply.text))
            answer = _shortened(reply.text)
    if flawed is not None:
        return CheckedReply(value=flawed, unusable=tuple(quoted))
    return CheckedReply(lost=quoted[-1], unusable=tuple(quoted))


def _with_reply(problem: str, text: str) -> str:
    """The problem and the beginning of the reply, for people."""
    flat = " ".join(text.split())
    return f"{problem}: “{flat[:QUOTED]}{'…' if len(flat) > QUOTED else ''}”" if flat else problem


def _shortened(text: str) -> str:
    """The text of a bad reply, to be quoted when the optimizer is asked once more. Of a long reply, only the beginning
    and the end are quoted; an empty reply becomes `(empty)`."""
    half = LONGEST_BAD_REPLY // 2
    shown = text if len(text) <= LONGEST_BAD_REPLY else f"{text[:half]}\n[…]\n{text[-half:]}"
    return shown.strip() or "(empty)"


async def _call(optimizer: Caller, messages: list[Message], schema: Schema, *, label: str, attempt: int) -> ChatReply:
    """Ask in the strictest form that the endpoint has not refused yet."""
    while True:
        form = optimizer.form
        asked = messages if form == "schema" else spelled_out(messages, schema)
        try:
            return await optimizer(
                asked, stage=schema.name, label=label, schema=replace(schema, form=form), attempt=attempt
            )
        except FormRefusedError:
            if form not in NEXT_FORM:
                raise
            if optimizer.form == form:  # another request may have noticed the refusal in the meantime
                optimizer.form = NEXT_FORM[form]


def spelled_out(messages: list[Message], schema: Schema) -> list[Message]:
    """The messages with the schema in the text, for endpoints that do not take it as a parameter."""
    body = json.dumps(schema.body, ensure_ascii=False)
    note = f'Reply with one JSON object and nothing else. It must fit this JSON schema, "{schema.name}":\n{body}'
    *earlier, last = messages
    return [*earlier, {**last, "content": f"{last['content']}\n\n{note}"}]


def parse(reply: ChatReply) -> Any:
    """The JSON value of a reply. A reply that was cut off is never used, even if it can be read."""
    if reply.finish_reason == "length":
        raise ValueError("it was cut off at the token limit; be shorter")
    text = without_thinking(reply.text).strip()
    if not text:
        raise ValueError("it was empty")
    try:
        return json.loads(text)
    except ValueError:
        return _object_within(text)


def without_thinking(text: str) -> str:
    """The reply without a reasoning model's thoughts; empty if the thoughts do not end."""
    if _BEGINS_WITH_OBJECT.match(text):
        return text  # a tag inside the JSON object is part of the object's text
    tags = [(tag.start(), tag.end(), bool(tag[1]), tag[2].lower()) for tag in _THOUGHT_TAG.finditer(text)]
    last = {name: start for start, _, closes, name in tags if closes}
    outside: list[str] = []
    at, thinking = 0, ""
    for start, end, closes, name in tags:
        if not thinking and not closes and start < last.get(name, -1):
            outside.append(text[at:start])
            thinking = name
        elif closes and name == thinking:
            at, thinking = end, ""
        elif closes and not thinking:  # a thought whose opening tag is missing
            outside, at = [], end
    text = "".join([*outside, text[at:]])
    return "" if _THOUGHT_OPEN.match(text) else text


def _object_within(text: str) -> Any:
    """The one JSON object inside prose or a code fence. Braces in the prose that are not JSON are ignored."""
    values = []
    start = text.find("{")
    while start >= 0:
        end = _end_of_object(text, start)
        with contextlib.suppress(ValueError):
            values.append(json.loads(_without_trailing_commas(text[start:end]), strict=False))
        start = text.find("{", end)
    if len(values) != 1:
        raise ValueError("it is not valid JSON" + (": it holds more than one object" if values else ""))
    return values[0]


def _end_of_object(text: str, start: int) -> int:
    """The end of the object that begins at `start`; raises ValueError if it was cut off."""
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(text)):
        char = text[at]
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            if depth == 0:
                return at + 1
    raise ValueError("it is cut off: the JSON object is not closed")


def _without_trailing_commas(text: str) -> str:
    """The text without commas before a closing bracket, except in strings."""
    out, at = [], 0
    for string in _STRING.finditer(text):
        out += [_TRAILING_COMMA.sub("", text[at : string.start()]), string[0]]
        at = string.end()
    return "".join([*out, _TRAILING_COMMA.sub("", text[at:])])
