"""What a command line's output says: the answer, what it did on the way, tokens and cost, or what went wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b-\x1f\x7f]")
_API_ERROR = re.compile(r"\A\s*\[?API Error: ?(.{0,500}?)\]?\s*\Z", re.DOTALL)
"""How some command lines print an endpoint's refusal in place of an answer, with exit code 0."""
_SHOWN = 4000
"""Characters of one event that the transcript keeps."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What an agent's output says."""

    output: str
    messages: list[Message] = field(default_factory=list)
    """What it did on the way: its words, its tool calls and their results, as the chat protocol has them."""
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """None where it does not say."""


def plain_text(text: str) -> str:
    """Without colours, cursor moves and other control codes."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n"))


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def hear_text(stdout: str) -> Heard:
    """All of it is the answer."""
    return _answered(plain_text(stdout).strip())


def _answered(output: str, **more: Any) -> Heard:
    refused = _API_ERROR.match(output)
    return Heard(output="" if refused else output, error=f"API error: {refused[1]}" if refused else "", **more)


def _events(stdout: str) -> Iterator[dict[str, Any]]:
    """JSON lines, or one JSON value; whatever else is between them is left out."""
    for text in (stdout, *stdout.splitlines()):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        yield from (event for event in (value if isinstance(value, list) else [value]) if isinstance(event, dict))
        if text is stdout:
            return


def call_message(identity: str, name: str, arguments: Any, text: str = "") -> Message:
    """A tool call."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": name, "arguments": given[:_SHOWN]}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": identity, "type": "function", "function": function}],
    }


def result_message(identity: str, result: Any) -> Message:
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": identity, "content": text[:_SHOWN]}


def tool_calls(messages: list[Message]) -> Iterator[tuple[str, str]]:
    """Every tool call of a transcript: the tool's name, its arguments."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield str(call["function"]["name"]), str(call["function"]["arguments"])


def loaded(messages: list[Message], name: str) -> bool:
    """Did the agent load this skill: by its tool for skills, or by reading the skill's SKILL.md?"""
    for tool, given in tool_calls(messages):
        if f"{name}/SKILL.md" in given or f"{name}\\\\SKILL.md" in given:
            return True
        if tool.lower().endswith("skill") and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", given):
            return True
    return False


def hear_claude(stdout: str) -> Heard:
    """`--output-format stream-json` or `json`, of Claude Code and Qwen Code: messages, then one result."""
    messages: list[Message] = []
    result: dict[str, Any] | None = None
    for event in _events(stdout):
        if event.get("type") in {"assistant", "user"} and isinstance(event.get("message"), dict):
            messages += _claude_messages(event["type"], event["message"].get("content"))
        elif event.get("type") == "result":
            result = event
    if result is None:
        return Heard(output="", messages=messages, error="no result in the output")
    used = result.get("usage") or {}
    said = result.get("error") or {}
    output = str(result.get("result") or (said.get("message") if isinstance(said, dict) else said) or "")
    refused = _answered(output).error
    prompt = sum(
        int(used.get(key) or 0) for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    out_of_turns = result.get("subtype") == "error_max_turns"  # its own limit: no answer, but no fault of the endpoint
    return Heard(
        output=output,
        messages=messages or [{"role": "assistant", "content": output}],
        error=refused if out_of_turns or not result.get("is_error") else output or str(result.get("subtype")),
        prompt_tokens=prompt,
        completion_tokens=int(used.get("output_tokens") or 0),
        usd=_number(result.get("total_cost_usd")),
    )


def _claude_messages(role: str, content: Any) -> Iterator[Message]:
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
        kind = part.get("type")
        if kind == "text":
            yield {"role": role, "content": str(part.get("text", ""))}
        elif kind == "tool_use":
            yield call_message(str(part.get("id", "")), str(part.get("name")), part.get("input"))
        elif kind == "tool_result":
            yield result_message(str(part.get("tool_use_id", "")), _claude_result(part.get("content")))


def _claude_result(content: Any) -> Any:
    if isinstance(content, list) and all(isinstance(each, dict) and each.get("type") == "text" for each in content):
        return "\n".join(str(each.get("text", "")) for each in content)
    return content or ""


def hear_codex(stdout: str) -> Heard:
    """`codex exec --json`: items as they are completed; the last agent message is the answer."""
    messages: list[Message] = []
    output, error, prompt, completion = "", "", 0, 0
    for event in _events(stdout):
        kind, item = event.get("type"), event.get("item") or {}
        if kind == "item.completed" and item.get("type") == "agent_message":
            output = str(item.get("text", ""))
            messages.append({"role": "assistant", "content": output})
        elif kind == "item.completed" and item.get("type") not in {"reasoning", "error"}:
            messages += _codex_call(item)
        elif kind == "turn.completed":
            used = event.get("usage") or {}
            prompt += int(used.get("input_tokens") or 0)
            completion += int(used.get("output_tokens") or 0)
        elif kind == "turn.failed":
            error = str((event.get("error") or {}).get("message") or "turn failed")
    if not output and not error:
        error = "no agent message in the output"
    return Heard(output=output, messages=messages, error=error, prompt_tokens=prompt, completion_tokens=completion)


def _codex_call(item: dict[str, Any]) -> list[Message]:
    """A command, a change of files, a tool of a server."""
    identity, kind = str(item.get("id", "")), str(item.get("type"))
    if kind == "command_execution":
        result = f"{item.get('aggregated_output', '')}"
        return [call_message(identity, "shell", {"command": item.get("command")}), result_message(identity, result)]
    rest = {key: value for key, value in item.items() if key not in {"id", "type", "status", "result"}}
    return [
        call_message(identity, kind, rest),
        result_message(identity, item.get("result") or item.get("status") or ""),
    ]


def hear_opencode(stdout: str) -> Heard:
    """`opencode run --format json`: parts of the answer and tool calls, then what each step took."""
    parts: list[str] = []
    messages: list[Message] = []
    error, prompt, completion, usd = "", 0, 0, None
    for event in _events(stdout):
        part = event.get("part") or {}
        if event.get("type") == "text":
            parts.append(str(part.get("text", "")))
            messages.append({"role": "assistant", "content": parts[-1]})
        elif event.get("type") == "tool_use":
            state, identity = part.get("state") or {}, str(part.get("callID", ""))
            parts = []  # what was said before a tool call is no answer
            messages.append(call_message(identity, str(part.get("tool")), state.get("input")))
            messages.append(result_message(identity, state.get("output") or state.get("error") or ""))
        elif event.get("type") == "step_finish":
            used = part.get("tokens") or {}
            prompt += int(used.get("input") or 0) + int((used.get("cache") or {}).get("read") or 0)
            completion += int(used.get("output") or 0) + int(used.get("reasoning") or 0)
            cost = _number(part.get("cost"))
            usd = cost if usd is None or cost is None else usd + cost
        elif event.get("type") == "error":
            told = event.get("error") or {}
            error = str((told.get("data") or {}).get("message") or told.get("name") or "error")
    output = "\n".join(parts)
    if not output and not error:
        error = "no text in the output"
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return Heard(output=output, messages=messages, error=error, usd=usd or None, **counts)


def hear_gemini(stdout: str) -> Heard:
    """`gemini --output-format json`: one object, after whatever else it prints, with the answer and the tokens."""
    text = "\n" + stdout.strip()
    for event in _events(text[max(text.rfind("\n{\n"), 0) :]):
        if "response" not in event and "error" not in event:
            continue
        told = event.get("error") or {}
        models = ((event.get("stats") or {}).get("models") or {}).values()
        tokens = [model.get("tokens") or {} for model in models]
        return Heard(
            output=str(event.get("response") or ""),
            error=str(told.get("message") or "error") if told else "",
            prompt_tokens=sum(int(each.get("prompt") or 0) for each in tokens),
            completion_tokens=sum(int(each.get("candidates") or 0) + int(each.get("thoughts") or 0) for each in tokens),
        )
    return Heard(output="", error="no response in the output")


def hear_gemini_stream(stdout: str) -> Heard:
    """`gemini --output-format stream-json`: pieces of messages, tool calls and results, then what it took."""
    messages: list[Message] = []
    used: dict[str, Any] = {}
    error, ended = "", False
    for event in _events(stdout):
        kind = event.get("type")
        if kind == "message" and event.get("role") == "assistant":
            said = str(event.get("content") or "")
            if event.get("delta") and messages and messages[-1].keys() == {"role", "content"}:
                messages[-1]["content"] += said
            else:
                messages.append({"role": "assistant", "content": said})
        elif kind == "tool_use":
            identity = str(event.get("tool_id", ""))
            messages.append(call_message(identity, str(event.get("tool_name")), event.get("parameters")))
        elif kind == "tool_result":
            told = event.get("output") or (event.get("error") or {}).get("message") or event.get("status") or ""
            messages.append(result_message(str(event.get("tool_id", "")), told))
        elif kind == "result":
            ended, used = True, event.get("stats") or {}
            error = str((event.get("error") or {}).get("message") or "") if event.get("status") == "error" else ""
    said = messages[-1]["content"] if messages and messages[-1].keys() == {"role", "content"} else ""
    return Heard(
        output=said,
        messages=messages,
        error=error or ("" if ended else "no result in the output"),
        prompt_tokens=int(used.get("input_tokens") or 0),
        completion_tokens=int(used.get("output_tokens") or 0),
    )


def hear_copilot(stdout: str) -> Heard:
    """`copilot --output-format json`: messages with tool calls, and their results; the last message is the answer."""
    messages: list[Message] = []
    output, error, prompt, completion = "", "", 0, 0
    for event in _events(stdout):
        kind, data = event.get("type"), event.get("data") or {}
        if kind == "assistant.message":
            output = str(data.get("content") or "") or output
            calls = data.get("toolRequests") or []
            said = str(data.get("content") or "")
            messages += [{"role": "assistant", "content": said}] if said or not calls else []
            messages += [call_message(str(c.get("toolCallId")), str(c.get("name")), c.get("arguments")) for c in calls]
        elif kind == "tool.execution_complete":
            told = data.get("result") or data.get("error") or {}
            shown = told.get("content") or told.get("message") or told if isinstance(told, dict) else told
            messages.append(result_message(str(data.get("toolCallId")), shown))
        elif kind == "assistant.usage":
            prompt += int(data.get("inputTokens") or 0)
            completion += int(data.get("outputTokens") or 0)
        elif kind == "session.error":
            error = str(data.get("message") or "error")
    error = "" if output else error or "no message in the output"
    return Heard(output=output, messages=messages, error=error, prompt_tokens=prompt, completion_tokens=completion)


def hear_goose(stdout: str) -> Heard:
    """`goose run --output-format stream-json`: messages of typed parts, then the end."""
    messages: list[Message] = []
    error = ""
    for event in _events(stdout):
        if event.get("type") == "error":
            error = str(event.get("error") or event.get("message") or "error")
        given = event.get("messages") if "messages" in event else [event.get("message")]
        for message in (each for each in given or () if isinstance(each, dict)):
            if message.get("role") == "assistant" or message.get("content"):
                _goose_parts(message, messages)
    said = [m["content"] for m in messages if m["role"] == "assistant" and "tool_calls" not in m]
    return Heard(output=said[-1] if said else "", messages=messages, error=error if said else error or "no message")


def _goose_parts(message: dict[str, Any], messages: list[Message]) -> None:
    """Pieces of one message's text are joined; a call or a result ends it."""
    for part in message.get("content") or ():
        kind, identity = part.get("type"), str(part.get("id", ""))
        if kind == "text" and message.get("role") == "assistant":
            if messages and messages[-1].keys() == {"role", "content"}:
                messages[-1]["content"] += str(part.get("text", ""))
            else:
                messages.append({"role": "assistant", "content": str(part.get("text", ""))})
        elif kind == "toolRequest":
            call = (part.get("toolCall") or {}).get("value") or {}
            messages.append(call_message(identity, str(call.get("name")), call.get("arguments")))
        elif kind == "toolResponse":
            messages.append(result_message(identity, (part.get("toolResult") or {}).get("value") or ""))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
