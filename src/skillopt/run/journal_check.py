"""Is a journal as it was written? And what of a damaged one can be kept."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from skillopt.errors import Damaged
from skillopt.run.journal import Journal, seal

_REPLIES = "key, attempt, role, stage, model, turn, reply, prompt_tokens, completion_tokens, cached_tokens"
_TOTALS = "role, stage, model, calls, first_turns, prompt_tokens, completion_tokens, cached_tokens"


def journal_problem(path: Path, least: int = 0) -> str:  # noqa: PLR0911 - one for each thing that can be wrong
    """What is wrong with a journal that held at least so many replies; empty if nothing."""
    if not path.exists():
        return "is missing" if least else ""
    try:
        with Journal(path), closing(sqlite3.connect(path)) as db:
            (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                return f"is damaged ({' '.join(str(found).split())[:120]})"
            replies = sum(1 for _ in _sound_replies(db))
            counts = "SELECT max((SELECT count(*) FROM replies), (SELECT count(*) FROM reply_seals))"
            (stored,) = db.execute(counts).fetchone()
            if replies < stored:
                return f"is damaged: {stored - replies} of {stored} replies are not what was received"
            totals = f"SELECT s.seal, {_columns('t', _TOTALS)} FROM total_seals s LEFT JOIN totals t"  # noqa: S608
            sealed = [row[0] == seal(*row[1:]) for row in db.execute(f"{totals} USING (role, stage, model)")]
            (kept,) = db.execute("SELECT count(*) FROM totals").fetchone()
            if not all(sealed) or kept != len(sealed):
                return "is damaged: its sums of what was paid do not fit their checksums"
    except (sqlite3.DatabaseError, Damaged, UnicodeDecodeError) as error:
        return f"is damaged ({str(error)[:120]})"
    if replies < least:
        return f"has lost replies: it held {least} when the last step was finished, {replies} are there"
    return ""


def salvage(path: Path) -> tuple[int, Path]:
    """Put every sound reply into a new journal; gives how many, and where the damaged one now lies.

    What was paid is counted anew from the replies kept, one call each.
    """
    aside = free_name(path.with_name(f"{path.stem}.damaged{path.suffix}"))
    rows = list(_readable(path))
    for end in ("", "-wal", "-shm"):
        damaged = path.with_name(path.name + end)
        if damaged.exists():
            damaged.rename(aside.with_name(aside.name + end))
    with Journal(path), closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.create_function("seal", -1, seal, deterministic=True)
        db.execute("BEGIN")
        db.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute(
            "INSERT INTO totals SELECT role, stage, model, count(*), sum(turn=1), sum(prompt_tokens),"
            " sum(completion_tokens), sum(cached_tokens) FROM replies GROUP BY role, stage, model"
        )
        db.execute("COMMIT")
    return len(rows), aside


def _columns(table: str, names: str) -> str:
    return ", ".join(f"{table}.{name.strip()}" for name in names.split(","))


def _sound_replies(db: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    db.text_factory = _text
    query = f"SELECT s.seal, {_columns('r', _REPLIES)} FROM replies r JOIN reply_seals s USING (key, attempt)"  # noqa: S608
    for row in db.execute(query):
        if row[0] == seal(*row[1:]):
            yield row[1:]


def _readable(path: Path) -> Iterator[tuple[object, ...]]:
    """The sound replies of a journal that may break off anywhere."""
    seals = {(key, attempt): sealed for key, attempt, sealed in _rows(path, "reply_seals", "key, attempt, seal")}
    seen = set()
    for row in _rows(path, "replies", _REPLIES):
        if row[:2] not in seen and seals.get(row[:2]) == seal(*row):
            seen.add(row[:2])
            yield row


def _rows(path: Path, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """From both ends, so that one bad page does not take what lies behind it; a row may come twice."""
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as db:
            db.text_factory = _text
            yield from db.execute(f"SELECT {columns} FROM {table} ORDER BY key {order}")  # noqa: S608 - our own names


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def free_name(path: Path) -> Path:
    """A name beside it that nothing has yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
