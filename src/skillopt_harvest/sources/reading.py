"""Reads the lines of a session in bounded memory. Every reader fills a `Reading` with them."""

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
from skillopt_harvest.records import AgentSession, SessionFacts, SessionTurn, short_id
from skillopt_harvest.redact import Redactor

LONGEST_LINE = 16 << 20
"""The maximum number of bytes of a line. A longer line is skipped and counted."""
LARGEST_FILE = 64 << 20
"""The maximum number of bytes of a file that cannot be read line by line."""
LONGEST_TEXT = 6000
"""The maximum number of characters that are stored of a turn."""
_ENOUGH = 3 * LONGEST_TEXT
"""If the text of a turn has this many characters before redaction, no more text is added to it."""
LONGEST_TOOL = 400
MOST_TOOLS = 40
"""The maximum number of tool calls that are stored of a turn."""
MOST_TURNS = 400
"""The maximum number of turns of one part of a session. A longer session is split into parts."""
OVERLAP = 4
"""Each part of a session after the first begins with this many turns from the end of the part before it, because a
correction needs its request."""
_INJECTED = re.compile(
    r"<(?:environment_context|user_instructions|system-reminder|permissions|skill|turn_aborted|task-notification"
    r"|teammate-message|bash-)|# AGENTS\.md"
)
_TAGS = re.compile(r"<system-reminder>.*?</system-reminder>|</?user_query>|<timestamp>.*?</timestamp>", re.DOTALL)
_COMMAND = re.compile(r"<(?:command-name|command-message|local-command)|Caveat: |\[Request interrupted")
_SKILL_FILE = re.compile(r"skills/([\w-]{1,64})/SKILL\.md\b")
"""Matches the path of a skill's file: some agents load a skill by reading this file."""
_MAIN = ("command", "cmd", "file_path", "filePath", "path", "absolute_path", "skill", "pattern", "url", "query")


def is_injected(text: str) -> bool:
    """Return True if the agent's program wrote this message in the user's name."""
    return bool(_INJECTED.match(text.lstrip()) or _COMMAND.match(text.lstrip()))


@dataclass
class Position:
    """The position of a line in a file."""

    offset: int = 0
    line: int = 0


@dataclass
class TurnInPieces:
    """A turn that has not ended. Its texts are still as in the transcript; they are redacted at the end of the turn."""

    role: Literal["user", "assistant"]
    line: int
    last_line: int
    moment: str
    texts: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    declined: bool = False

    def add(self, text: str) -> None:
        if sum(map(len, self.texts)) < _ENOUGH:
            self.texts.append(text[:_ENOUGH])


@dataclass
class Reading:
    """A session that is being read. Every text is redacted here, before any other code sees it."""

    source: str
    redactor: Redactor
    id: str
    cwd: str = ""
    headless: bool = False
    subagent: bool = False
    forked: bool = False
    """True if the session begins with a copy of another session."""
    skills: list[str] = field(default_factory=list)
    turns: list[SessionTurn] = field(default_factory=list)
    now: TurnInPieces | None = None
    starts: list[Position] = field(default_factory=list)
    """The positions of the last two messages of the user."""
    position: Position = field(default_factory=Position)
    """The position of the line that is being read."""
    moment: str = ""
    """The time of the line that is being read, as the transcript has it."""
    message: tuple[str, int, int] = ("", 0, 0)
    """The id of the last message, and the numbers of texts and of tool calls that the turn had before this message."""

    @property
    def facts(self) -> SessionFacts:
        return SessionFacts.model_validate(self, from_attributes=True)

    def name(self, session: Any) -> None:
        if isinstance(session, str) and session:
            self.id = session_id(session, self.redactor)

    def folder(self, cwd: Any) -> None:
        if isinstance(cwd, str) and cwd and not self.cwd:
            self.cwd = self.redactor(cwd)

    def skill(self, name: Any) -> None:
        if isinstance(name, str) and re.fullmatch(r"[\w:-]{1,64}", name) and name not in self.skills:
            self.skills += [name] if self.redactor(name) == name else []

    def user(self, text: str, *, declined: bool = False) -> None:
        text = _TAGS.sub("", text).strip()
        if text and not is_injected(text):
            self.starts = [*self.starts[-1:], self.position]
            turn = self._turn("user")
            turn.add(text)
            turn.declined |= declined

    def assistant(self, text: str) -> None:
        if text.strip():
            self._turn("assistant").add(text)

    def tool(self, name: Any, arguments: Any) -> None:
        """Add a tool call with its main argument."""
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = {"command": arguments}
        main = next((at(arguments, key) for key in _MAIN if at(arguments, key)), "")
        shown = " ".join(map(str, main)) if isinstance(main, list) else str(main)
        if str(name).lower() in {"skill", "activate_skill"}:
            self.skill(at(arguments, "skill") or at(arguments, "command") or at(arguments, "name"))
        elif read := _SKILL_FILE.search(shown):
            self.skill(read[1])
        turn = self._turn("assistant")
        if len(turn.tools) < MOST_TOOLS:
            turn.tools.append(self.redactor.shortened(f"$ {name}: {shown}", LONGEST_TOOL))

    def begin(self, message: Any, role: Literal["user", "assistant"]) -> None:
        """Begin a message. If it has the id of the last message, it is a longer version of that message and replaces
        it."""
        texts, tools = (self.now.texts, self.now.tools) if self.now and self.now.role == role else ([], [])
        if message and message == self.message[0]:
            del texts[self.message[1] :], tools[self.message[2] :]
        else:
            self.message = (str(message or ""), len(texts), len(tools))

    def _turn(self, role: Literal["user", "assistant"]) -> TurnInPieces:
        """Return the turn to which a new piece of text by this role belongs."""
        if self.now and self.now.role != role:
            self.close()
        self.now = self.now or TurnInPieces(role, self.position.line, self.position.line, self.moment)
        self.now.last_line = self.position.line
        return self.now

    def close(self) -> None:
        """End the current turn, and store its redacted text."""
        if turn := self.now:
            text = self.redactor.joined(turn.texts, LONGEST_TEXT)
            self.turns.append(
                SessionTurn(
                    role=turn.role,
                    text=text,
                    line=turn.line,
                    last_line=turn.last_line,
                    moment=turn.moment,
                    tools=tuple(turn.tools),
                    declined=turn.declined,
                )
            )
        self.now = None

    def part(self) -> AgentSession:
        """Return the turns that have ended, as a part of the session. The next part repeats the last
        `OVERLAP` of these turns."""
        session = AgentSession(source=self.source, id=self.id, turns=tuple(self.turns), **dict(self.facts))
        self.turns = self.turns[-OVERLAP:]
        return session

    def whole(self) -> AgentSession:
        """End the current turn, and return the rest of the session as far as it was read."""
        self.close()
        return self.part()


def session_id(text: str, redactor: Redactor) -> str:
    """Return a safe id for a session's name. A transcript may contain any text as the name."""
    clean = redactor(text)
    name = re.sub(r"[^\w.-]", "-", clean)[:64].strip(".-") or "session"
    return name if clean == text else f"{name[:50]}-{short_id(text)}"


def json_lines(path: Path, start: Position, skipped: Counter[str]) -> Iterator[tuple[Position, Any]]:
    """Yield the JSON objects of a file, each with its line's position. If the last line is incomplete, it is not
    yielded, because it is still being written; the next harvest reads it. Lines that are too long or not objects are
    skipped and counted."""
    with open_regular(path) as file:
        file.seek(start.offset)
        offset, number = start.offset, start.line
        while raw := file.readline(LONGEST_LINE):
            ended = raw.endswith(b"\n")
            if len(raw) == LONGEST_LINE and not ended:
                length = _rest_of_line(file)
                if length is None:
                    return
                skipped["lines longer than 16 MB"] += 1
                offset, number = offset + len(raw) + length, number + 1
                continue
            here, offset, number = Position(offset, number + 1), offset + len(raw), number + 1
            try:
                value = json.loads(raw) if raw.strip() else None
            except (ValueError, RecursionError):
                if not ended:
                    return
                skipped["lines that are not JSON"] += 1
                continue
            if isinstance(value, dict):
                yield here, value
            elif value is not None:
                skipped["lines that are not JSON objects"] += 1
            if not ended:
                return


def _rest_of_line(file: BinaryIO) -> int | None:
    """Read the rest of a line that is too long, and return the number of bytes in this rest; None if the file ends
    before the line does."""
    length = 0
    while more := file.readline(1 << 20):
        length += len(more)
        if more.endswith(b"\n"):
            return length
    return None
