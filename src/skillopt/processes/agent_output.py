"""Parses a command line's output. Finds the answer (or the error), the steps before the answer, the tokens and the
cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from skillopt.chat_protocol import FunctionCall, Message, ToolCall

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b-\x1f\x7f]")
_API_ERROR = re.compile(r"\A\s*\[?API Error: ?(.{0,500}?)\]?\s*\Z", re.DOTALL)
"""Matches an endpoint's error that some command lines print as if it were an answer, with exit code 0."""
_SHOWN = 4000
"""The maximum number of characters of one event in the transcript."""


@dataclass(kw_only=True)
class AgentOutput:
    """The parsed output of an agent; a parser adds to it event by event."""

    output: str = ""
    messages: list[Message] = field(default_factory=list)
    """Everything before the answer, in the format of the chat protocol: the agent's messages, its tool calls and their
    results."""
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """The cost in dollars; None if the agent does not report it."""

    def say(self, text: object, *, joined: bool = False) -> str:
        """Add a text of the agent and return the text. If `joined` is true, the text continues the agent's previous
        text."""
        if joined and self.ends_with_text():
            self.messages[-1]["content"] = f"{self.messages[-1]['content']}{text!s}"
        else:
            self.messages.append({"role": "assistant", "content": str(text)})
        return str(text)

    def ends_with_text(self) -> bool:
        return bool(self.messages) and self.messages[-1].keys() == {"role", "content"}

    def call(self, identity: object, name: object, arguments: Any) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        function: FunctionCall = {"name": str(name), "arguments": text[:_SHOWN]}
        call: ToolCall = {"id": str(identity), "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": "", "tool_calls": [call]})

    def result(self, identity: object, result: Any) -> None:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        self.messages.append({"role": "tool", "tool_call_id": str(identity), "content": text[:_SHOWN]})

    def use(self, counts: dict[str, Any] | None, prompt: tuple[str, ...], completion: tuple[str, ...]) -> None:
        """Add the token counts of an event. `prompt` names the fields of `counts` for tokens that the agent read,
        `completion` the fields for tokens that the agent wrote."""
        self.prompt_tokens += sum(int((counts or {}).get(name) or 0) for name in prompt)
        self.completion_tokens += sum(int((counts or {}).get(name) or 0) for name in completion)

    def or_error(self, missing: str) -> AgentOutput:
        """Return this output. If it has neither an answer nor an error, its error becomes `missing`."""
        self.error = self.error or ("" if self.output else missing)
        return self


def plain_text(text: str) -> str:
    """The text without colours, cursor moves and other control codes."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n"))


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def parse_text(stdout: str) -> AgentOutput:
    """The parser of plain output: the whole text is the answer."""
    return answered(plain_text(stdout).strip())


def answered(output: str) -> AgentOutput:
    refused = _API_ERROR.match(output)
    return AgentOutput(output="" if refused else output, error=f"API error: {refused[1]}" if refused else "")


def json_events(stdout: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in an output, which is one JSON value or JSON lines. Everything else is ignored."""
    for text in (stdout, *stdout.splitlines()):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        yield from (event for event in (value if isinstance(value, list) else [value]) if isinstance(event, dict))
        if text is stdout:
            return


def tool_calls(messages: list[Message]) -> Iterator[tuple[str, str]]:
    """Every tool call of a transcript: the tool's name and its arguments."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield str(call["function"]["name"]), str(call["function"]["arguments"])


def loaded(messages: list[Message], name: str) -> bool:
    """Did the agent load this skill? An agent loads a skill by a call of its tool for skills, or by reading the skill's
    SKILL.md."""
    for tool, text in tool_calls(messages):
        if f"{name}/SKILL.md" in text or f"{name}\\\\SKILL.md" in text:
            return True
        if tool.lower().endswith("skill") and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            return True
    return False


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
