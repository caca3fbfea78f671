"""Transcripts in the form of each coding agent, made after the public formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Turns = Sequence[tuple[str, str]]
CWD = "/home/alice/shop"


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def claude_row(role: str, content: Any, session: str, **more: Any) -> dict[str, Any]:
    row = {"type": role, "message": {"role": role, "content": content}, "sessionId": session, "cwd": CWD}
    return {**row, "isSidechain": False, "userType": "external", "version": "2.1.38", **more}


def claude_code(home: Path, session: str, turns: Turns, **more: Any) -> Path:
    rows: list[Any] = [{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}]
    for role, text in turns:
        content: Any = text if role == "user" else [{"type": "text", "text": text}]
        rows.append(claude_row(role, content, session, **more))
    return write_lines(home / ".claude" / "projects" / "-home-alice-shop" / f"{session}.jsonl", rows)


def codex(home: Path, session: str, turns: Turns, **meta: Any) -> Path:
    about = {"id": session, "cwd": CWD, "originator": "codex-tui", "source": "cli", "cli_version": "0.148.0", **meta}
    rows: list[Any] = [{"timestamp": "2026-08-22T10:00:00Z", "type": "session_meta", "payload": about}]
    rows.append(_codex("user", "<environment_context>\n<cwd>/home/alice/shop</cwd>\n</environment_context>"))
    for role, text in turns:
        rows.append(_codex(role, text))
        rows.append({"type": "event_msg", "payload": {"type": "token_count"}})
    return write_lines(home / ".codex" / "sessions" / "2026" / "08" / "22" / f"rollout-{session}.jsonl", rows)


def _codex(role: str, text: str) -> dict[str, Any]:
    part = {"type": "input_text" if role == "user" else "output_text", "text": text}
    return {"type": "response_item", "payload": {"type": "message", "role": role, "content": [part]}}


def opencode(home: Path, session: str, turns: Turns, **more: Any) -> Path:
    storage = home / ".local" / "share" / "opencode" / "storage"
    about = storage / "session" / "proj" / f"ses_{session}.json"
    _write_json(about, {"id": f"ses_{session}", "directory": CWD, "version": "1.0", **more})
    for number, (role, text) in enumerate(turns):
        message = f"msg_{session}{number:03d}"
        _write_json(storage / "message" / f"ses_{session}" / f"{message}.json", {"id": message, "role": role})
        _write_json(storage / "part" / message / "prt_1.json", {"type": "text", "text": text})
    return about


def gemini_cli(home: Path, session: str, turns: Turns, *, lines: bool = True, **more: Any) -> Path:
    names = {"user": "user", "assistant": "gemini"}
    about = {"sessionId": session, "projectHash": "ab12", "startTime": "2026-05-01T18:34:30.869Z", **more}
    messages = [{"id": str(n), "type": names[role], "content": text} for n, (role, text) in enumerate(turns)]
    folder = home / ".gemini" / "tmp" / "ab12" / "chats"
    if lines:
        return write_lines(folder / f"session-{session}.jsonl", [about, *messages, {"$set": {"lastUpdated": "x"}}])
    return _write_json(folder / f"session-{session}.json", {**about, "messages": messages})


def copilot_cli(home: Path, session: str, turns: Turns) -> Path:
    rows: list[Any] = [{"type": "session.start", "data": {"sessionId": session, "context": {"cwd": CWD}}, "id": "e0"}]
    for role, text in turns:
        more = {"toolRequests": []} if role == "assistant" else {"transformedContent": text, "attachments": []}
        rows.append({"type": f"{role}.message", "data": {"content": text, **more}})
    return write_lines(home / ".copilot" / "session-state" / session / "events.jsonl", rows)


def cursor(home: Path, session: str, turns: Turns) -> Path:
    rows = []
    for role, text in turns:
        shown = f"<user_query>\n{text}\n</user_query>" if role == "user" else text
        rows.append({"role": role, "message": {"content": [{"type": "text", "text": shown}]}})
    folder = home / ".cursor" / "projects" / "home-alice-shop" / "agent-transcripts" / session
    return write_lines(folder / f"{session}.jsonl", rows)


def plain(path: Path, sessions: Iterable[tuple[str, Turns]]) -> Path:
    rows = [{"session": name, "role": role, "content": text} for name, turns in sessions for role, text in turns]
    return write_lines(path, rows)


def _write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def large_folder(folder: Path, size: int, files: int = 50) -> int:
    """Long sessions as they are: mostly results of tools, with one correction in each. Returns the bytes."""
    folder.mkdir(parents=True)
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "line of a log file 0123456789\n" * 3000}]
    noise = json.dumps(claude_row("user", result, "s")) + "\n"
    call = json.dumps(claude_row("assistant", [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}], "s"))
    for number in range(files):
        path = folder / f"s{number}.jsonl"
        with path.open("w") as file:
            while file.tell() < size // files:
                file.write(f"{call}\n{noise}")
            for role, text in (
                ("user", "add it"),
                ("assistant", "npm add it"),
                ("user", "no, pnpm"),
                ("assistant", "pnpm add it"),
            ):
                file.write(json.dumps(claude_row(role, text, f"s{number}")) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())
