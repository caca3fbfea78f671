"""Replies with a structure: a schema goes out, a checked value comes back, or the reason why it was lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from skillopt.models.base import ChatReply, Message, RefusedError, Schema, TransientError
from skillopt.models.call import Caller

T = TypeVar("T")
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[T]):
    """What came of asking. `lost` says why there is no value; it is counted and shown, never silent."""

    value: T | None = None
    lost: str = ""
    unreachable: bool = False
    """Lost for the endpoint's sake, not for what the model wrote."""


async def ask(
    optimizer: Caller, messages: list[Message], schema: Schema, check: Callable[[Any], T], *, label: str
) -> Answer[T]:
    """Ask once, and once more with the error where the reply does not fit. `check` raises ValueError where it must."""
    problem = ""
    for attempt in (1, 2):
        sent = messages
        if problem:
            note = f"Your last reply could not be used: {problem}. Reply again with the JSON object alone."
            sent = [*messages, {"role": "user", "content": note}]
        try:
            reply = await optimizer(sent, stage=schema.name, label=label, schema=schema, attempt=attempt)
        except (TransientError, RefusedError) as error:
            return Answer(lost=str(error), unreachable=isinstance(error, TransientError))
        try:
            return Answer(value=check(parse(reply)))
        except (ValueError, RecursionError) as error:
            problem = str(error)[:200] or type(error).__name__
    return Answer(lost=problem)


def parse(reply: ChatReply) -> Any:
    """The JSON value of a reply. A reply that was cut off is never used, even if it can be read."""
    if reply.finish_reason == "length":
        raise ValueError("it was cut off at the token limit; be shorter")
    text = reply.text.strip()
    if fenced := _FENCED.match(text):
        text = fenced[1]
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("it is not valid JSON") from None
