"""The journal: every reply ever received, in SQLite. What is in it is never paid for again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skillopt.errors import UserError

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE replies (
        key TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        role TEXT NOT NULL,
        stage TEXT NOT NULL,
        model TEXT NOT NULL,
        turn INTEGER NOT NULL,
        reply TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        PRIMARY KEY (key, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE totals (
        role TEXT NOT NULL,
        stage TEXT NOT NULL,
        model TEXT NOT NULL,
        calls INTEGER NOT NULL,
        first_turns INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        PRIMARY KEY (role, stage, model)
    ) WITHOUT ROWID;
    """,
)
"""Numbered by their place; a journal knows how many it has seen."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One reply as it is stored."""

    key: str
    attempt: int
    role: str
    stage: str
    model: str
    turn: int
    """1 for the first call of a rollout."""
    reply: dict[str, Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 1
    """0 for a rollout whose own calls are in the journal, too."""


@dataclass(frozen=True, kw_only=True)
class Total:
    """What was paid for one role, stage and model."""

    role: str
    stage: str
    model: str
    calls: int
    first_turns: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Journal:
    """One SQLite file in WAL mode. A reply is durable before anything is made of it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path}: the journal cannot be read ({error}); start another run with --fresh") from None

    def _migrate(self) -> None:
        (seen,) = self._db.execute("PRAGMA user_version").fetchone()
        if seen > len(MIGRATIONS):
            raise UserError(f"{self.path}: written by a newer SkillOpt; update, or start another run with --fresh")
        for number, script in enumerate(MIGRATIONS[seen:], seen + 1):
            self._db.executescript(f"BEGIN; {script}; PRAGMA user_version={number}; COMMIT;")

    def get(self, key: str, attempt: int) -> dict[str, Any] | None:
        row = self._db.execute("SELECT reply FROM replies WHERE key=? AND attempt=?", (key, attempt)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, record: Record) -> None:
        fields = asdict(record) | {"reply": json.dumps(record.reply), "first": int(record.turn == 1)}
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(
                "INSERT INTO replies VALUES (:key, :attempt, :role, :stage, :model, :turn, :reply,"
                " :prompt_tokens, :completion_tokens, :cached_tokens)",
                fields,
            )
            self._db.execute(
                "INSERT INTO totals VALUES (:role, :stage, :model, :calls, :first,"
                " :prompt_tokens, :completion_tokens, :cached_tokens)"
                " ON CONFLICT DO UPDATE SET calls=calls+excluded.calls, first_turns=first_turns+excluded.first_turns,"
                " prompt_tokens=prompt_tokens+excluded.prompt_tokens,"
                " completion_tokens=completion_tokens+excluded.completion_tokens,"
                " cached_tokens=cached_tokens+excluded.cached_tokens",
                fields,
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def totals(self, keep: Callable[[Total], bool] = lambda total: True) -> list[Total]:
        """What was paid since the run began, over all sessions."""
        rows = self._db.execute("SELECT * FROM totals ORDER BY role, stage, model").fetchall()
        names = list(Total.__dataclass_fields__)
        return [t for row in rows if keep(t := Total(**dict(zip(names, row, strict=True))))]

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()
