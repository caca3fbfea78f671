"""Is a journal undamaged? And what can be kept of a damaged one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from skillopt.errors import Damaged
from skillopt.run.files import free_name
from skillopt.run.journal import REPLIES, SEAL_TOTALS, TOTALS, UNREADABLE, Journal, seal


def journal_problem(path: Path, least: int = 0) -> str:  # noqa: PLR0911 - one for each thing that can be wrong
    """What is wrong with a journal that should have at least this many replies; empty if nothing."""
    if not path.exists():
        return "is missing" if least else ""
    try:
        with Journal(path), closing(sqlite3.connect(path)) as db:
            (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                return f"is damaged ({' '.join(str(found).split())[:120]})"
            db.text_factory = _text
            sound = [_is_sound(row) for row in db.execute(f"SELECT {REPLIES}, seal FROM replies")]  # noqa: S608
            if not all(sound):
                return f"is damaged: {sound.count(False)} of {len(sound)} replies are not what was received"
            if not all(_is_sound(row) for row in db.execute(f"SELECT {TOTALS}, seal FROM totals")):  # noqa: S608
                return "is damaged: its sums of what was paid do not fit their checksums"
    except (*UNREADABLE, Damaged) as error:
        return f"is damaged ({str(error)[:120]})"
    if len(sound) < least:
        return f"has lost replies: it held {least} when the last step was finished, {len(sound)} are there"
    return ""


def salvage(path: Path) -> tuple[int, Path]:
    """Put every undamaged reply into a new journal; returns how many, and where the damaged one is now.

    What was paid is counted again from the replies kept, one call each.
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
        db.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute(
            f"INSERT INTO totals ({TOTALS}) SELECT role, stage, model, count(*), sum(turn=1), sum(prompt_tokens),"  # noqa: S608
            " sum(completion_tokens), sum(cached_tokens), sum(json_extract(reply, '$.usage.usd'))"
            " FROM replies GROUP BY role, stage, model"
        )
        db.execute(SEAL_TOTALS)
        db.execute("COMMIT")
    return len(rows), aside


def _is_sound(row: tuple[Any, ...]) -> bool:
    return bool(row[-1] == seal(*row[:-1]))


def _readable(path: Path) -> Iterator[tuple[Any, ...]]:
    """The sound replies of a journal that may break off anywhere: from both ends, so that one bad page does not take
    what lies behind it."""
    seen = set()
    for order in ("ASC", "DESC"):
        with contextlib.suppress(*UNREADABLE), closing(sqlite3.connect(path)) as db:
            db.text_factory = _text
            for row in db.execute(f"SELECT {REPLIES}, seal FROM replies ORDER BY key {order}"):  # noqa: S608
                if row[:2] not in seen and _is_sound(row):
                    seen.add(row[:2])
                    yield row


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
