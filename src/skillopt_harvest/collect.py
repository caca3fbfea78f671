"""Reads the files that the user names: finds the new and the changed files, and yields their sessions one by one."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from skillopt.errors import UserError
from skillopt.record.files import file_digest, read_bytes
from skillopt.skill.folder import NotAFileError
from skillopt_harvest.records import AgentSession, FileState, HarvestState, SourceSelection
from skillopt_harvest.redact import Redactor
from skillopt_harvest.sources import opencode
from skillopt_harvest.sources.agents import AGENTS, is_subagent_file, plain
from skillopt_harvest.sources.evals import EVALS
from skillopt_harvest.sources.reading import LARGEST_FILE, MOST_TURNS, Position, Reading, json_lines, session_id
from skillopt_harvest.sources.traces import TRACES, read_traces

SOURCES = (*AGENTS, "opencode", "plain", *TRACES, *EVALS)
_HEAD = 4096


@dataclass
class Collection:
    """Reads the files of one harvest. Counts what was read and what was skipped, and notes where the next harvest
    begins to read."""

    selection: SourceSelection
    state: HarvestState
    redactor: Redactor
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    states: dict[str, FileState] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    files: int = 0

    def read(self) -> Iterator[AgentSession]:
        """Yield the sessions that are new or have become longer, file by file."""
        for path in selected_files(self.selection):
            try:
                yield from (session for session in self._read_file(path) if session.turns and self._wanted(session))
            except (OSError, ValueError, RecursionError) as error:
                if isinstance(error, OSError) and not isinstance(
                    error, FileNotFoundError | NotAFileError | PermissionError
                ):
                    raise
                self.skipped["files that cannot be read"] += 1

    def _wanted(self, session: AgentSession) -> bool:
        project = self.selection.project
        folder = self.redactor(str(project)) if project else ""
        elsewhere = bool(folder and session.cwd) and not f"{session.cwd}/".startswith(f"{folder}/")
        reasons = {
            "sub-agent runs": session.subagent and not self.selection.subagents,
            "headless runs": session.headless and not self.selection.headless,
            "sessions of other projects": elsewhere,
        }
        reason = next((name for name, applies in reasons.items() if applies), "")
        self.left_out[reason] += bool(reason)
        if not reason:
            self.sessions.add(session.id)
        return not reason

    def _read_file(self, path: Path) -> Iterator[AgentSession]:
        key, info = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24], _stat(path)
        before = self.state.files.get(key)
        if before and (before.size, before.mtime_ns) == info:
            return
        self.files += 1
        if path.suffix == ".zst":
            raise ValueError("compressed")
        size = min(_HEAD, info[0])
        known = before is not None and info[0] >= before.size and file_digest(path, before.head_size) == before.head
        start = before if known and before else FileState(size=0, mtime_ns=0, head="", head_size=0)
        end = start
        source = self.selection.source
        if source in TRACES:
            yield from read_traces(path, source, self.redactor, self.skipped)
        elif source == "opencode":
            for reading in opencode.read_sessions(path, Reading(source, self.redactor, path.stem), self.skipped):
                yield reading.whole()
        elif path.suffix == ".json":
            yield self._whole(path)
        else:
            end = yield from self._lines(path, start)
        update = {"size": info[0], "mtime_ns": info[1], "head_size": size}
        self.states[key] = end.model_copy(update={**update, "head": file_digest(path, size)})

    def _whole(self, path: Path) -> AgentSession:
        """Read a session that is one JSON object (Gemini CLI)."""
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError("too large")
        reading = Reading(self.selection.source, self.redactor, session_id(path.stem, self.redactor))
        value: JsonValue = json.loads(read_bytes(path))
        if not isinstance(value, dict) or not AGENTS[self.selection.source].read(value, reading):
            raise ValueError("another form")
        return reading.whole()

    def _lines(self, path: Path, start: FileState) -> Generator[AgentSession, None, FileState]:
        """Yield the sessions of a file with JSON lines, from the position after the last read. Return the state from
        which the next harvest reads. That harvest begins at the user's second-to-last message, because the last message
        may be a correction whose new answer is not in the file yet."""
        source = self.selection.source
        read = AGENTS[source].read if source in AGENTS else plain
        reading = Reading(
            source,
            self.redactor,
            start.session or session_id(path.stem if path.stem != "events" else path.parent.name, self.redactor),
            start.cwd,
            start.headless,
            start.subagent or is_subagent_file(path),
            start.forked,
            list(start.skills),
        )
        named = ""
        for position, row in json_lines(path, Position(start.offset, start.line), self.skipped):
            if source == "plain" and (name := str(row.get("session") or named)) != named:
                if session_id(name, self.redactor) != reading.id:
                    yield reading.whole()
                    reading.turns, reading.skills = [], []
                reading.name(name)
                named = name
            reading.position, reading.moment = position, _moment(row.get("timestamp"))
            try:
                if not read(row, reading):
                    self.skipped["lines of an unknown form"] += 1
            except (TypeError, AttributeError, ValueError):
                self.skipped["lines of an unknown form"] += 1
            if len(reading.turns) > MOST_TURNS:
                yield reading.part()
        yield reading.whole()
        begin = reading.starts[0] if reading.starts else None
        where = {"offset": begin.offset, "line": begin.line - 1} if begin else {}
        return start.model_copy(update={**where, **dict(reading.facts), "session": reading.id})


def _moment(text: JsonValue) -> str:
    return text if isinstance(text, str) and re.fullmatch(r"[\d:.TZ+ -]{10,40}", text) else ""


def selected_files(selection: SourceSelection) -> list[Path]:
    """Return the files that a harvest would read, sorted by path."""
    source, given = selection.source, selection.path
    if source not in SOURCES:
        raise UserError(f"--source: unknown '{source}'; known are: {', '.join(SOURCES)}")
    if given is None and source not in AGENTS and source != "opencode":
        raise UserError(f"--source {source}: needs --from FILE")
    if given is not None and not given.exists():
        raise UserError(f"--from: {given}: no such file or folder")
    if given is not None and given.is_file():
        return [given]
    root = given or (AGENTS[source].root() if source in AGENTS else opencode.root())
    if source in AGENTS:
        agent = AGENTS[source]
        patterns = (
            agent.patterns if (root / agent.patterns[0].partition("/")[0]).is_dir() else ("**/*.jsonl", "**/*.json")
        )
        files = {path for pattern in patterns for path in _inside(root, pattern)}
        if agent.by_project and selection.project and not given:
            files = {path for path in files if _of_project(path, root / agent.by_project, selection.project)}
    elif source == "opencode":
        files = set(opencode.session_files(root))
    else:
        kinds = {".jsonl", ".ndjson", ".json", ".yaml", ".yml", ".eval"}
        files = {path for path in _inside(root, "**/*") if path.suffix in kinds}
    return sorted(path for path in files if _stat(path)[1] >= selection.since * 1e9)


def _inside(root: Path, pattern: str) -> Iterator[Path]:
    """Yield the files that match the pattern, except links and files in linked folders."""
    fixed, _, rest = f"./{pattern}".partition("*")
    base = root / fixed.rpartition("/")[0]
    top = base.resolve()
    for path in base.glob(f"{fixed.rpartition('/')[2]}*{rest}"):
        if path.is_file() and path.resolve() == top / path.relative_to(base):
            yield path


def _stat(path: Path) -> tuple[int, int]:
    """Return a file's size in bytes and its time of change in nanoseconds; 0 for both if the file is gone. For a
    database, the `-wal` file beside it counts too, because the newest rows may be there."""
    files = [path, path.with_name(f"{path.name}-wal")] if path.suffix == ".db" else [path]
    stats = [file.stat() for file in files if file.exists()]
    return sum(each.st_size for each in stats), max((each.st_mtime_ns for each in stats), default=0)


def _of_project(path: Path, projects: Path, project: Path) -> bool:
    """Return True if a transcript may belong to the project. The name of its folder is the project's path with dashes,
    which can fit several projects; only the sessions have the exact path."""
    name = re.sub(r"[^A-Za-z0-9]", "-", str(project)).strip("-")
    return path.relative_to(projects).parts[0].strip("-").startswith(name)
