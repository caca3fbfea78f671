"""OpenCode's transcripts: a file for each session, message and part, or a database with the same content."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from skillopt.record.files import read_json
from skillopt.tasks.nested import at
from skillopt_harvest.sources.reading import Position, Reading

Part = tuple[Any, Any]
"""A message and one part of it."""


def root() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "opencode"


def session_files(folder: Path) -> list[Path]:
    """Return the file of each session, and the database if it exists."""
    files = sorted((folder / "storage" / "session").glob("*/*.json"))
    return [*files, *([folder / "opencode.db"] if (folder / "opencode.db").is_file() else [])]


def read_sessions(file: Path, reading: Reading, skipped: Counter[str]) -> Iterator[Reading]:
    """Fill `reading` with one session after another, and yield it after each session."""
    if file.suffix == ".db":
        try:
            yield from _from_database(file, reading, skipped)
        except sqlite3.Error as error:
            raise ValueError(str(error)) from None
        return
    info = read_json(file)
    _begin(reading, info)
    _fill(reading, _stored_parts(file.parents[2], str(at(info, "id") or "")))
    yield reading


def _begin(reading: Reading, info: Any) -> None:
    reading.turns, reading.cwd, reading.skills = [], "", []
    reading.name(at(info, "id"))
    reading.folder(at(info, "directory"))
    reading.subagent = bool(at(info, "parentID"))


def _stored_parts(storage: Path, session: str) -> Iterator[Part]:
    if not session.replace("_", "").isalnum():  # the session's id is used as a folder's name
        return
    for message_file in sorted((storage / "message" / session).glob("*.json")):
        message = read_json(message_file)
        for part_file in sorted((storage / "part" / message_file.stem).glob("*.json")):
            yield message, read_json(part_file)


def _fill(reading: Reading, parts: Iterator[Part]) -> None:
    for number, (message, part) in enumerate(parts, 1):
        reading.position = Position(0, number)
        if at(part, "type") == "tool":
            reading.tool(at(part, "tool"), at(part, "state.input"))
        elif at(part, "type") == "text" and not at(part, "synthetic"):
            text = str(at(part, "text") or "")
            (reading.user if at(message, "role") == "user" else reading.assistant)(text)


def _from_database(file: Path, reading: Reading, skipped: Counter[str]) -> Iterator[Reading]:
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
        for session, parent, folder in database.execute("SELECT id, parent_id, directory FROM session ORDER BY id"):
            _begin(reading, {"id": session, "parentID": parent, "directory": folder})
            rows = database.execute(
                "SELECT message.data, part.data FROM part JOIN message ON part.message_id = message.id "
                "WHERE part.session_id = ? ORDER BY message.id, part.id",
                (session,),
            )
            _fill(reading, _parsed(rows, skipped))
            yield reading


def _parsed(rows: Iterable[tuple[str, str]], skipped: Counter[str]) -> Iterator[Part]:
    for message, part in rows:
        try:
            yield json.loads(message), json.loads(part)
        except (ValueError, TypeError, RecursionError):
            skipped["lines that are not JSON"] += 1
