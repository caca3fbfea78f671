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
    """What it did on the way, as the analysts are to read it."""
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


def hear_claude(stdout: str) -> Heard:
    """`--output-format stream-json` or `json`, of Claude Code and Qwen Code: messages, then one result."""
    messages: list[Message] = []
    result: dict[str, Any] | None = None
    for event in _events(stdout):
        if event.get("type") in {"assistant", "user"} and isinstance(event.get("message"), dict):
            messages.append({"role": event["type"], "content": _claude_text(event["message"].get("content"))})
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


def _claude_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = []
    for part in content or []:
        kind = part.get("type")
        if kind == "text":
            parts.append(str(part.get("text", "")))
        elif kind == "tool_use":
            parts.append(f"[calls {part.get('name')}: {json.dumps(part.get('input'), ensure_ascii=False)[:_SHOWN]}]")
        elif kind == "tool_result":
            found = part.get("content")
            text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
            parts.append(f"[result: {text[:_SHOWN]}]")
    return "\n".join(parts)


def hear_codex(stdout: str) -> Heard:
    """`codex exec --json`: items as they are completed; the last agent message is the answer."""
    messages: list[Message] = []
    output, error, prompt, completion = "", "", 0, 0
    for event in _events(stdout):
        kind, item = event.get("type"), event.get("item") or {}
        if kind == "item.completed" and item.get("type") == "agent_message":
            output = str(item.get("text", ""))
            messages.append({"role": "assistant", "content": output})
        elif kind == "item.completed" and item.get("type") == "command_execution":
            told = f"[runs {item.get('command')}: {str(item.get('aggregated_output', ''))[:_SHOWN]}]"
            messages.append({"role": "assistant", "content": told})
        elif kind == "item.completed" and item.get("type") not in {"reasoning", "error"}:
            messages.append({"role": "assistant", "content": f"[{json.dumps(item, ensure_ascii=False)[:_SHOWN]}]"})
        elif kind == "turn.completed":
            used = event.get("usage") or {}
            prompt += int(used.get("input_tokens") or 0)
            completion += int(used.get("output_tokens") or 0)
        elif kind == "turn.failed":
            error = str((event.get("error") or {}).get("message") or "turn failed")
    if not output and not error:
        error = "no agent message in the output"
    return Heard(output=output, messages=messages, error=error, prompt_tokens=prompt, completion_tokens=completion)


def hear_opencode(stdout: str) -> Heard:
    """`opencode run --format json`: parts of the answer, then what each step took."""
    parts: list[str] = []
    error, prompt, completion, usd = "", 0, 0, None
    for event in _events(stdout):
        part = event.get("part") or {}
        if event.get("type") == "text":
            parts.append(str(part.get("text", "")))
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
    return Heard(output=output, error=error, prompt_tokens=prompt, completion_tokens=completion, usd=usd or None)


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


def hear_copilot(stdout: str) -> Heard:
    """`copilot --output-format json`: the last message is the answer; it does not say what it took."""
    output, error = "", ""
    for event in _events(stdout):
        data = event.get("data") or {}
        if event.get("type") == "assistant.message":
            output = str(data.get("content") or "") or output
        elif event.get("type") == "session.error":
            error = str(data.get("message") or "error")
    return Heard(output=output, error="" if output else error or "no message in the output")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
