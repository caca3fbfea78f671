"""Reading one session: lines in bounded memory, and a builder that every reader fills."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from skillopt.skill.folder import open_regular
from skillopt.tasks.nested import at
from skillopt_harvest.records import AgentSession, SessionTurn
from skillopt_harvest.redact import Redactor

LONGEST_LINE = 16 << 20
"""The most bytes of a line; a longer one is skipped and counted."""
LARGEST_FILE = 64 << 20
"""The most bytes of a file that can only be read whole."""
LONGEST_TEXT = 6000
"""The most characters of a turn that are stored."""
LONGEST_TOOL = 400
MOST_TURNS = 400
"""The most turns of one part; a longer session comes in several."""
OVERLAP = 4
"""Turns that a part has in common with the one before: a correction needs the request before it."""
_INJECTED = re.compile(
    r"<(?:environment_context|user_instructions|system-reminder|permissions|skill|turn_aborted)|# AGENTS\.md"
)
_TAGS = re.compile(r"<system-reminder>.*?</system-reminder>|</?user_query>|<timestamp>.*?</timestamp>", re.DOTALL)
_COMMAND = re.compile(r"<(?:command-name|command-message|local-command)|Caveat: |\[Request interrupted")
_MAIN = ("command", "cmd", "file_path", "filePath", "path", "absolute_path", "skill", "pattern", "url", "query")


def is_injected(text: str) -> bool:
    """Did the agent's program write this message in the user's name?"""
    return bool(_INJECTED.match(text.lstrip()) or _COMMAND.match(text.lstrip()))


@dataclass
class Position:
    """The position of a line."""

    offset: int = 0
    line: int = 0


@dataclass
class Reading:
    """A session as it is read. Every text is redacted here, before anything else sees it."""

    source: str
    redactor: Redactor
    id: str
    cwd: str = ""
    headless: bool = False
    subagent: bool = False
    skills: list[str] = field(default_factory=list)
    turns: list[SessionTurn] = field(default_factory=list)
    starts: list[Position] = field(default_factory=list)
    """Positions of the last user turns."""
    position: Position = field(default_factory=Position)
    """The number of the line that is being read."""

    def name(self, session: Any) -> None:
        if isinstance(session, str) and session:
            self.id = safe_id(session)

    def folder(self, cwd: Any) -> None:
        if isinstance(cwd, str) and cwd and not self.cwd:
            self.cwd = self.redactor(cwd)

    def skill(self, name: Any) -> None:
        if isinstance(name, str) and re.fullmatch(r"[\w:-]{1,64}", name) and name not in self.skills:
            self.skills.append(name)

    def user(self, text: str, *, declined: bool = False) -> None:
        text = _TAGS.sub("", text).strip()
        if text and not is_injected(text):
            self.starts = [*self.starts[-1:], self.position]
            self._add("user", text, declined=declined)

    def assistant(self, text: str) -> None:
        if text.strip():
            self._add("assistant", text)

    def tool(self, name: Any, arguments: Any) -> None:
        """A tool call, with its main argument."""
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = {"command": arguments}
        main = next((at(arguments, key) for key in _MAIN if at(arguments, key)), "")
        shown = " ".join(map(str, main)) if isinstance(main, list) else str(main)
        if str(name).lower() == "skill":
            self.skill(at(arguments, "skill") or at(arguments, "command") or at(arguments, "name"))
        self._add("assistant", "", (f"$ {name}: {self.redactor.shortened(shown, LONGEST_TOOL)}",))

    def _add(
        self, role: Literal["user", "assistant"], text: str, tools: tuple[str, ...] = (), *, declined: bool = False
    ) -> None:
        line, text = self.position.line, self.redactor.shortened(text.strip(), LONGEST_TEXT)
        before = self.turns[-1] if self.turns else None
        if before and before.role == role:
            joined = f"{before.text}\n{text}".strip()[:LONGEST_TEXT]
            update = {"text": joined, "last_line": line, "tools": (*before.tools, *tools)[:40]}
            self.turns[-1] = before.model_copy(update={**update, "declined": before.declined or declined})
        else:
            self.turns.append(
                SessionTurn(role=role, text=text, line=line, last_line=line, tools=tools, declined=declined)
            )

    def part(self) -> AgentSession:
        """What was read so far; the next part begins with the last turns of this one."""
        session = AgentSession(
            source=self.source,
            id=self.id,
            cwd=self.cwd,
            headless=self.headless,
            subagent=self.subagent,
            skills=tuple(self.skills),
            turns=tuple(self.turns),
        )
        self.turns = self.turns[-OVERLAP:]
        return session


def safe_id(text: str) -> str:
    """A session's name as an id: a transcript may hold anything there."""
    return re.sub(r"[^\w.-]", "-", text)[:64].strip(".-") or "session"


def json_lines(path: Path, start: Position, skipped: Counter[str]) -> Iterator[tuple[Position, Any]]:
    """Objects, each with the position of its line. A last line without its end is still being written: it is left
    for the next read. What is too long or not an object is skipped and counted."""
    with open_regular(path) as file:
        file.seek(start.offset)
        offset, number = start.offset, start.line
        while raw := file.readline(LONGEST_LINE):
            if not raw.endswith(b"\n"):
                length = _rest_of_line(file) if len(raw) == LONGEST_LINE else None
                if length is None:
                    return
                skipped["lines longer than 16 MB"] += 1
                offset, number = offset + len(raw) + length, number + 1
                continue
            here, offset, number = Position(offset, number + 1), offset + len(raw), number + 1
            try:
                value = json.loads(raw) if raw.strip() else None
            except (ValueError, RecursionError):
                value = None
                skipped["lines that are not JSON"] += 1
                continue
            if isinstance(value, dict):
                yield here, value


def _rest_of_line(file: BinaryIO) -> int | None:
    """The bytes up to the end of a line that is too long; None if the file ends first."""
    length = 0
    while more := file.readline(1 << 20):
        length += len(more)
        if more.endswith(b"\n"):
            return length
    return None
