"""Parsers of coding agents' output, one for each format."""

from __future__ import annotations

from typing import Any

from skillopt.processes.agent_output import AgentOutput, answered, json_events, number

Event = dict[str, Any]


def parse_claude(stdout: str) -> AgentOutput:
    """Parse what Claude Code and Qwen Code print with `--output-format stream-json` or `json`: messages, then one
    result."""
    agent = AgentOutput(error="no result in the output")
    for event in json_events(stdout):
        if event.get("type") in {"assistant", "user"} and isinstance(event.get("message"), dict):
            _add_claude(agent, event["type"], event["message"].get("content"))
        elif event.get("type") == "result":
            failure = event.get("error") or {}
            reason = failure.get("message") if isinstance(failure, dict) else failure
            agent.output = str(event.get("result") or reason or "")
            out_of_turns = event.get("subtype") == "error_max_turns"  # the agent's own limit, not the endpoint's
            failed = event.get("is_error") and not out_of_turns
            agent.error = agent.output or str(event.get("subtype")) if failed else answered(agent.output).error
            cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
            agent.prompt_tokens = agent.completion_tokens = 0  # if there are several results, the last is used
            agent.use(event.get("usage"), ("input_tokens", *cached), ("output_tokens",))
            agent.usd = number(event.get("total_cost_usd"))
            if not agent.messages:
                agent.say(agent.output)
    return agent


def _add_claude(agent: AgentOutput, role: str, content: Any) -> None:
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
        kind = part.get("type")
        if kind == "text":
            agent.messages.append({"role": role, "content": str(part.get("text", ""))})
        elif kind == "tool_use":
            agent.call(part.get("id", ""), part.get("name"), part.get("input"))
        elif kind == "tool_result":
            result = part.get("content") or ""
            if isinstance(result, list) and all(
                isinstance(each, dict) and each.get("type") == "text" for each in result
            ):
                result = "\n".join(str(each.get("text", "")) for each in result)
            agent.result(part.get("tool_use_id", ""), result)


def parse_codex(stdout: str) -> AgentOutput:
    """Parse `codex exec --json`: completed items; the last agent message is the answer."""
    agent = AgentOutput()
    for event in json_events(stdout):
        kind, item = event.get("type"), event.get("item") or {}
        if kind == "item.completed" and item.get("type") == "agent_message":
            agent.output = agent.say(item.get("text", ""))
        elif kind == "item.completed" and item.get("type") == "command_execution":
            agent.call(item.get("id", ""), "shell", {"command": item.get("command")})
            agent.result(item.get("id", ""), f"{item.get('aggregated_output', '')}")
        elif kind == "item.completed" and item.get("type") not in {"reasoning", "error"}:
            rest = {key: value for key, value in item.items() if key not in {"id", "type", "status", "result"}}
            agent.call(item.get("id", ""), item.get("type"), rest)
            agent.result(item.get("id", ""), item.get("result") or item.get("status") or "")
        elif kind == "turn.completed":
            agent.use(event.get("usage"), ("input_tokens",), ("output_tokens",))
        elif kind == "turn.failed":
            agent.error = str((event.get("error") or {}).get("message") or "turn failed")
    return agent.or_error("no agent message in the output")


def parse_opencode(stdout: str) -> AgentOutput:
    """Parse the output of `opencode run --format json`: tool calls, parts of the answer, and the tokens of each
    step."""
    agent, parts = AgentOutput(), list[str]()
    for event in json_events(stdout):
        kind, part = event.get("type"), event.get("part") or {}
        if kind == "text":
            parts.append(agent.say(part.get("text", "")))
        elif kind == "tool_use":
            state, parts = part.get("state") or {}, []  # text before a tool call is not the answer
            agent.call(part.get("callID", ""), part.get("tool"), state.get("input"))
            agent.result(part.get("callID", ""), state.get("output") or state.get("error") or "")
        elif kind == "step_finish":
            used = part.get("tokens") or {}
            agent.use(used, ("input",), ("output", "reasoning"))
            agent.use(used.get("cache"), ("read",), ())
            cost = number(part.get("cost"))
            agent.usd = cost if agent.usd is None or cost is None else agent.usd + cost
        elif kind == "error":
            failure = event.get("error") or {}
            agent.error = str((failure.get("data") or {}).get("message") or failure.get("name") or "error")
    agent.output, agent.usd = "\n".join(parts), agent.usd or None
    return agent.or_error("no text in the output")


def parse_gemini(stdout: str) -> AgentOutput:
    """Parse `gemini --output-format json`: one object with the answer and the tokens. Other output may come first."""
    text = "\n" + stdout.strip()
    for event in json_events(text[max(text.rfind("\n{\n"), 0) :]):
        if "response" in event or "error" in event:
            failure = event.get("error") or {}
            error = str(failure.get("message") or "error") if failure else ""
            agent = AgentOutput(output=str(event.get("response") or ""), error=error)
            for model in ((event.get("stats") or {}).get("models") or {}).values():
                agent.use(model.get("tokens"), ("prompt",), ("candidates", "thoughts"))
            return agent
    return AgentOutput(error="no response in the output")


def parse_gemini_stream(stdout: str) -> AgentOutput:
    """Parse `gemini --output-format stream-json`: pieces of messages, tool calls and results, then the tokens."""
    agent = AgentOutput(error="no result in the output")
    for event in json_events(stdout):
        kind, failure = event.get("type"), (event.get("error") or {}).get("message")
        if kind == "message" and event.get("role") == "assistant":
            agent.say(event.get("content") or "", joined=bool(event.get("delta")))
        elif kind == "tool_use":
            agent.call(event.get("tool_id", ""), event.get("tool_name"), event.get("parameters"))
        elif kind == "tool_result":
            agent.result(event.get("tool_id", ""), event.get("output") or failure or event.get("status") or "")
        elif kind == "result":
            agent.use(event.get("stats"), ("input_tokens",), ("output_tokens",))
            agent.error = str(failure or "") if event.get("status") == "error" else ""
    agent.output = str(agent.messages[-1]["content"]) if agent.ends_with_text() else ""
    return agent


def parse_copilot(stdout: str) -> AgentOutput:
    """Parse `copilot --output-format json`: messages, tool calls and results; the last message is the answer."""
    agent = AgentOutput()
    for event in json_events(stdout):
        kind, data = event.get("type"), event.get("data") or {}
        if kind == "assistant.message":
            calls = data.get("toolRequests") or []
            if data.get("content") or not calls:
                agent.output = agent.say(data.get("content") or "") or agent.output
            for call in calls:
                agent.call(call.get("toolCallId"), call.get("name"), call.get("arguments"))
        elif kind == "tool.execution_complete":
            result = data.get("result") or data.get("error") or {}
            shown = result.get("content") or result.get("message") or result if isinstance(result, dict) else result
            agent.result(data.get("toolCallId"), shown)
        elif kind == "assistant.usage":
            agent.use(data, ("inputTokens",), ("outputTokens",))
        elif kind == "session.error":
            agent.error = str(data.get("message") or "error")
    agent.error = "" if agent.output else agent.error
    return agent.or_error("no message in the output")


def parse_goose(stdout: str) -> AgentOutput:
    """Parse `goose run --output-format stream-json`: messages, each with parts of several types."""
    agent = AgentOutput()
    for event in json_events(stdout):
        if event.get("type") == "error":
            agent.error = str(event.get("error") or event.get("message") or "error")
        messages = event.get("messages") if "messages" in event else [event.get("message")]
        for message in (each for each in messages or () if isinstance(each, dict)):
            for part in message.get("content") or ():
                _add_goose(agent, message, part)
    texts = [str(message["content"]) for message in agent.messages if message.keys() == {"role", "content"}]
    agent.output = texts[-1] if texts else ""
    return agent if texts else agent.or_error("no message")


def _add_goose(agent: AgentOutput, message: Event, part: Event) -> None:
    """Add one part of a message. Pieces of text are joined until a tool call or a result comes."""
    kind, identity = part.get("type"), part.get("id", "")
    if kind == "text" and message.get("role") == "assistant":
        agent.say(part.get("text", ""), joined=True)
    elif kind == "toolRequest":
        call = (part.get("toolCall") or {}).get("value") or {}
        agent.call(identity, call.get("name"), call.get("arguments"))
    elif kind == "toolResponse":
        agent.result(identity, (part.get("toolResult") or {}).get("value") or "")
