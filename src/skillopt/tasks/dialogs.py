"""Converts rows of OpenAI's evals (`input`, `ideal`) and of chat fine-tuning (`messages`) to rows of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skillopt.tasks.nested import at, text_of


def as_task(row: Any) -> Any:
    """Convert a row of OpenAI's evals or of chat fine-tuning to question, answers and context. Any other row is
    returned as it is.

    The question is the user's last message. The answer is `ideal`, or the last message if this is the assistant's. All
    other messages are the context.
    """
    if not isinstance(row, dict) or "question" in row:
        return row
    if "ideal" in row and "input" in row:
        asked = row["input"] if _is_dialog(row["input"]) else [{"role": "user", "content": row["input"]}]
        rest = {name: value for name, value in row.items() if name not in {"input", "ideal"}}
        return {**rest, **asked_by(asked), "answers": row["ideal"]}
    if _is_dialog(row.get("messages")):
        rest = {name: value for name, value in row.items() if name != "messages"}
        return {**rest, **asked_by(row["messages"])}
    return row


def _is_dialog(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(at(each, "role"), str) for each in value)


def asked_by(messages: Sequence[Any]) -> dict[str, Any]:
    """The fields of a task from a conversation: question, context, images, and the answer if the last message is the
    assistant's. Messages after the question, such as results of tools, are part of the context."""
    *asked, last = messages
    answered = at(last, "role") == "assistant" and asked
    asked = asked if answered else list(messages)
    question = next((message for message in reversed(asked) if at(message, "role") == "user"), None)
    fields: dict[str, Any] = {"question": text_of(at(question, "content"))}
    if answered:
        fields["answers"] = [text_of(at(last, "content"))]
    if context := _context([message for message in asked if message is not question]):
        fields["context"] = context
    contents = [at(message, "content") for message in asked]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    if images := [url for part in parts if (url := at(part, "image_url.url") or at(part, "image_url"))]:
        fields["images"] = images
    return fields


def _context(messages: Sequence[Any]) -> str:
    """The messages as one text. If there are several, each is shown with its role, because the question refers to a
    conversation."""
    said = [(str(at(each, "role")), text_of(at(each, "content")).strip()) for each in messages]
    said = [(role, text) for role, text in said if text]
    return said[0][1] if len(said) == 1 else "\n\n".join(f"{role}: {text}" for role, text in said)
