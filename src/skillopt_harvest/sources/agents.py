"""Transcripts of coding agents: for each agent, the folder of its transcripts and a reader for their lines.

A reader returns False if it does not know the format of a line. Such lines are skipped and counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.tasks.nested import at, text_of
from skillopt_harvest.sources.reading import Reading

LineReader = Callable[[Any, Reading], bool]
_DECLINED = re.compile(r"(?:The user doesn't want to|\[Request interrupted|rejected by (?:the )?user)", re.IGNORECASE)
_DECLINED_WITH = re.compile(r"the user said:\s*(.+)", re.IGNORECASE | re.DOTALL)


def claude_code(row: Any, reading: Reading) -> bool:
    kind = row.get("type")
    if at(row, "attachment.type") == "queued_command" and at(row, "attachment.commandMode") == "prompt":
        kind, row = "user", {**row, **row["attachment"], "message": {"content": at(row, "attachment.prompt")}}
    if kind not in {"user", "assistant"}:
        return kind in {
            *("summary", "system", "file-history-snapshot", "progress", "queue-operation", "attachment", "last-prompt"),
            *("permission-mode", "ai-title", "custom-title", "agent-name", "mode", "pr-link", "bridge-session"),
        }
    reading.name(row.get("sessionId"))
    reading.folder(row.get("cwd"))
    reading.subagent |= bool(row.get("isSidechain"))
    reading.headless |= str(row.get("entrypoint") or "").startswith("sdk")
    content = at(row, "message.content")
    if kind == "assistant":
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if at(part, "type") == "text":
                reading.assistant(text_of([part]))
            elif at(part, "type") == "tool_use":
                reading.tool(part.get("name"), part.get("input"))
        return True
    results = [part for part in content if at(part, "type") == "tool_result"] if isinstance(content, list) else []
    for part in results:
        said = text_of(part.get("content"))
        if _DECLINED.match(said) and (words := _DECLINED_WITH.search(said)):
            reading.user(words[1], declined=True)
    typed = at(row, "origin.kind") in {None, "human"}
    if typed and not row.get("isMeta") and not row.get("isCompactSummary"):
        others = [part for part in content if at(part, "type") == "text"] if isinstance(content, list) else content
        reading.user(text_of(others))
    return True


def codex(row: Any, reading: Reading) -> bool:
    kind, payload = row.get("type"), row.get("payload")
    if kind == "session_meta":
        if reading.forked:
            return True  # in a copied session, this is the head of the original
        source = at(payload, "source")
        reading.forked = bool(at(payload, "forked_from_id"))
        reading.name(at(payload, "id"))
        reading.folder(at(payload, "cwd"))
        reading.headless |= source == "exec" or "exec" in str(at(payload, "originator") or "")
        reading.subagent |= isinstance(source, dict)
        return True
    if kind == "message" or (kind is None and "id" in row and "instructions" in row):
        payload, kind = row, "response_item"  # the first versions of Codex had no envelope
        reading.name(row.get("id") if "instructions" in row else None)
    if kind != "response_item":
        return kind in {"event_msg", "turn_context", "compacted", "world_state"} or "record_type" in row
    item = at(payload, "type")
    if item == "message":
        text = text_of(at(payload, "content"))
        if at(payload, "role") == "user":
            reading.user(text)
        elif at(payload, "role") == "assistant":
            reading.assistant(text)
    elif item in {"function_call", "custom_tool_call", "local_shell_call"}:
        arguments = at(payload, "arguments") or at(payload, "input") or at(payload, "action")
        reading.tool(at(payload, "name") or "shell", arguments)
    return True


def copilot_cli(row: Any, reading: Reading) -> bool:
    kind, data = str(row.get("type")), row.get("data")
    if kind == "session.start":
        reading.name(at(data, "sessionId"))
        reading.folder(at(data, "context.cwd"))
    elif kind == "user.message":
        if not str(at(data, "source") or "").startswith("skill"):
            reading.user(text_of(at(data, "content")))
    elif kind == "assistant.message" and not at(data, "parentToolCallId"):
        reading.assistant(text_of(at(data, "content")))
        for call in at(data, "toolRequests") or []:
            reading.tool(at(call, "name"), at(call, "arguments"))
    elif kind == "skill.invoked":
        reading.skill(at(data, "name"))
    return kind.partition(".")[0] in {
        *("session", "user", "assistant", "tool", "skill", "subagent", "hook", "system", "abort", "permission")
    }


def cursor(row: Any, reading: Reading) -> bool:
    role, content = row.get("role"), at(row, "message.content")
    if role == "user":
        reading.user(text_of(content))
    elif role == "assistant":
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if at(part, "type") == "tool_use":
                reading.tool(part.get("name"), part.get("input"))
            else:
                reading.assistant(text_of([part]))
    return role in {"user", "assistant", "system"} or row.get("type") == "turn_ended"


def gemini_cli(row: Any, reading: Reading) -> bool:
    kind = row.get("type")
    if "sessionId" in row:
        reading.name(row.get("sessionId"))
        reading.subagent |= row.get("kind") == "subagent"
        for message in row.get("messages") or []:
            if isinstance(message, dict):
                reading.position.line += 1
                gemini_cli(message, reading)
        return True
    if kind in {"user", "gemini"}:
        reading.begin(row.get("id"), "user" if kind == "user" else "assistant")
    if kind == "user":
        reading.user(text_of(row.get("content")).partition("\n--- Content from referenced files ---")[0])
    elif kind == "gemini":
        reading.assistant(text_of(row.get("content")))
        for call in row.get("toolCalls") or []:
            reading.tool(at(call, "name"), at(call, "args"))
    return kind in {"user", "gemini", "info", "error", "warning"} or "$set" in row or "$rewindTo" in row


def plain(row: Any, reading: Reading) -> bool:
    """Read a line `{session, role, content}`. (If `session` changes, collect.py begins a new session.)"""
    if row.get("role") == "user":
        reading.user(text_of(row.get("content")))
    elif row.get("role") in {"assistant", "agent"}:
        reading.assistant(text_of(row.get("content")))
        for call in row.get("tools") or []:
            reading.tool(at(call, "name"), at(call, "arguments"))
    reading.skill(row.get("skill"))
    return row.get("role") in {"user", "assistant", "agent", "system", "tool"}


@dataclass(frozen=True, kw_only=True)
class AgentSource:
    """An agent's folder of transcripts, and the reader of their lines."""

    root: Callable[[], Path]
    patterns: tuple[str, ...]
    read: LineReader
    by_project: str = ""
    """Name of the folder whose subfolders are named after projects' paths; empty if there is no such folder."""


def _home(variable: str, default: str) -> Callable[[], Path]:
    return lambda: Path(os.environ.get(variable) or Path.home() / default)


AGENTS = {
    "claude-code": AgentSource(
        root=_home("CLAUDE_CONFIG_DIR", ".claude"),
        patterns=("projects/**/*.jsonl",),
        read=claude_code,
        by_project="projects",
    ),
    "codex": AgentSource(
        root=_home("CODEX_HOME", ".codex"),
        patterns=("sessions/**/rollout-*.jsonl*", "archived_sessions/**/rollout-*.jsonl*"),
        read=codex,
    ),
    "gemini-cli": AgentSource(
        root=lambda: Path(os.environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini",
        patterns=("tmp/*/chats/**/*.jsonl", "tmp/*/chats/**/*.json"),
        read=gemini_cli,
    ),
    "copilot-cli": AgentSource(
        root=_home("COPILOT_HOME", ".copilot"),
        patterns=("session-state/*/events.jsonl", "session-state/*.jsonl"),
        read=copilot_cli,
    ),
    "cursor": AgentSource(
        root=_home("CURSOR_HOME", ".cursor"),
        patterns=("projects/*/agent-transcripts/**/*.jsonl",),
        read=cursor,
        by_project="projects",
    ),
}
"""The coding agents, by name. OpenCode is in opencode.py, because it has a file for each message."""


def is_subagent_file(path: Path) -> bool:
    return path.name.startswith("agent-") or path.parent.name == "subagents"
