"""Reads traces that an observability tool exported as JSON lines. Each span becomes an exchange with session, input,
output and feedback. The attributes have the names of OpenInference or of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from skillopt.record.base import Record
from skillopt.tasks.nested import at, text_of
from skillopt_harvest.records import AgentSession
from skillopt_harvest.redact import Redactor
from skillopt_harvest.sources.reading import Position, Reading, json_lines

MOST_OPEN = 500
"""The maximum number of sessions that are open at the same time. Several sessions are open because an export may mix
the spans of different sessions."""


class TracedExchange(Record):
    """One request to an application and its answer."""

    session: str
    input: str
    output: str
    feedback: str = ""
    """A person's comment on a bad answer."""


def openinference(row: Any) -> TracedExchange | None:
    """Read a span with flat (`attributes."input.value"`), dotted (`attributes.input.value`) or nested attributes."""
    attributes = {key.removeprefix("attributes."): value for key, value in row.items()}
    attributes |= row["attributes"] if isinstance(row.get("attributes"), dict) else {}
    if row.get("parent_id") or row.get("parentSpanId"):
        return None
    names = ("session.id", "gen_ai.conversation.id", "context.trace_id", "traceId", "trace_id")
    session = next((value for name in names if (value := _value(attributes, name))), at(row, "context.trace_id"))
    given = _value(attributes, "input.value") or _messages(attributes, ("llm.input_messages", "gen_ai.input.messages"))
    output = _value(attributes, "output.value") or _messages(
        attributes, ("llm.output_messages", "gen_ai.output.messages")
    )
    notes = row.get("annotations") or row.get("span_annotations") or []
    return _exchange(session, given, output, [(at(n, "result.score"), at(n, "result.explanation")) for n in notes])


def langfuse(row: Any) -> TracedExchange | None:
    if row.get("parentObservationId"):
        return None
    session = row.get("sessionId") or row.get("traceId") or row.get("id")
    scores = [(at(score, "value"), at(score, "comment")) for score in row.get("scores") or []]
    return _exchange(session, _last_user(row.get("input")), _content(row.get("output")), scores)


def langsmith(row: Any) -> TracedExchange | None:
    if row.get("parent_run_id"):
        return None
    metadata = at(row, "extra.metadata") or {}
    session = at(metadata, "session_id") or at(metadata, "thread_id") or row.get("trace_id") or row.get("id")
    notes = [
        (at(note, "score"), _content(at(note, "correction")) or at(note, "comment"))
        for note in row.get("feedback") or []
    ]
    for each in (row.get("feedback_stats") or {}).values():
        notes += [(at(each, "avg"), comment) for comment in at(each, "comments") or []]
    return _exchange(session, _last_user(row.get("inputs")), _content(row.get("outputs")), notes)


TRACES: dict[str, Callable[[Any], TracedExchange | None]] = {
    "langfuse": langfuse,
    "langsmith": langsmith,
    "phoenix": openinference,
    "openinference": openinference,
}


def read_traces(path: Path, source: str, redactor: Redactor, skipped: Counter[str]) -> Iterator[AgentSession]:
    """Yield the sessions of an export. The line number of an exchange is the line number of its span."""
    adapter, open_sessions = TRACES[source], OrderedDict[str, Reading]()
    for position, row in json_lines(path, Position(), skipped):
        try:
            exchange = adapter(row)
        except (TypeError, AttributeError, ValueError, KeyError):
            skipped["spans of another form"] += 1
            continue
        if exchange is None:
            continue
        reading = open_sessions.setdefault(exchange.session, Reading(source, redactor, "session"))
        open_sessions.move_to_end(exchange.session)
        reading.name(exchange.session)
        reading.position = position
        reading.user(exchange.input)
        reading.assistant(exchange.output)
        if exchange.feedback:
            reading.user(exchange.feedback, declined=True)
        if len(open_sessions) > MOST_OPEN:
            yield open_sessions.popitem(last=False)[1].whole()
    for reading in open_sessions.values():
        yield reading.whole()


def _exchange(session: Any, given: Any, output: Any, notes: list[tuple[Any, Any]]) -> TracedExchange | None:
    words = [str(text) for score, text in notes if text and isinstance(score, int | float) and score <= 0]
    if not session or not given or not output:
        return None
    return TracedExchange(
        session=str(session), input=_content(given), output=_content(output), feedback="\n".join(words)
    )


def _value(attributes: Any, name: str) -> Any:
    flat = attributes.get(name)
    return at(attributes, name) if flat is None else flat


def _messages(attributes: Any, names: tuple[str, ...]) -> str:
    """Return the text of the last message. The messages are a list, JSON of a list, or keys such as
    `…messages.0.message.content`."""
    for name in names:
        value = _value(attributes, name)
        if value is not None:
            return _last_user(value)
        spread = [str(text) for key, text in sorted(attributes.items()) if key.startswith(name) and "content" in key]
        if spread:
            return spread[-1]
    return ""


def _last_user(value: Any) -> str:
    """Return the text of a value; for a list of messages, the text of the user's last message."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    messages = value if isinstance(value, list) else at(value, "messages")
    if isinstance(messages, list) and messages:
        flat = [at(each, "message") or each for each in messages]
        users = [each for each in flat if at(each, "role") in {"user", "human"}] or flat
        return _content(users[-1])
    return _content(value)


def _content(value: Any) -> str:
    if isinstance(value, dict):
        for key in ("content", "parts", "message", "output", "answer", "text", "input", "question"):
            if text := _content(value.get(key)):
                return text
        return ""
    return text_of(value) if not isinstance(value, int | float) else str(value)
