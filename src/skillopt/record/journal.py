"""The journal: an SQLite file with every reply that was received. A reply in the journal is never paid for again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue

from skillopt.errors import Damaged, UserError, disk_trouble, is_disk_trouble
from skillopt.record.state import WAY_OUT

_VERSION = 4
_TOTALS = """
    SELECT role, stage, model, sum(calls) AS calls, sum(turn = 1) AS first_turns, sum(prompt_tokens) AS prompt_tokens,
        sum(completion_tokens) AS completion_tokens, sum(cached_tokens) AS cached_tokens, sum(usd) AS usd,
        sum(iif(instr(substr(reply, 1, 200), '"written": '), json_extract(reply, '$.usage.written'), 0))
        AS written_tokens FROM replies WHERE paid GROUP BY role, stage, model ORDER BY role, stage, model
"""
"""The query for the totals. Its columns have the order of the fields of `Total`. Tokens that were written to a cache
are read from the stored replies: a column for them would make the journals of earlier versions unreadable."""
_TABLES = f"""
    CREATE TABLE replies (
        paid INTEGER NOT NULL,
        key TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        role TEXT NOT NULL,
        stage TEXT NOT NULL,
        model TEXT NOT NULL,
        turn INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        usd REAL,
        reply TEXT NOT NULL,
        seal TEXT NOT NULL,
        PRIMARY KEY (key, attempt)
    ) WITHOUT ROWID;
    CREATE VIEW totals AS {_TOTALS};
"""
REPLIES = """paid, key, attempt, role, stage, model, turn, calls, prompt_tokens, completion_tokens, cached_tokens, usd,
    reply"""
"""The columns that a row's checksum covers. `paid` is 0 for a reply that a different run has paid for."""
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The errors that a damaged file causes in SQLite: usually a DatabaseError, but a UnicodeDecodeError if SQLite's
message contains bytes that are not text."""
SENT = "sent"
"""The key under which a stored reply of the optimizer has the request: the request's messages and name."""
_INSERT = "INSERT INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def seal(*fields: object) -> str:
    """The checksum of a row. It is stored in the row, because SQLite does not notice a changed byte in a text."""
    text = "\0".join(map(str, fields))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(slots=True, kw_only=True)
class JournalRow:
    """One reply as it is stored."""

    key: str
    attempt: int
    role: str
    stage: str
    model: str
    turn: int
    """1 for the first call of a rollout; the later calls of the rollout have other numbers."""
    reply: dict[str, Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    usd: float | None = None
    """The cost in dollars that the model reports; None if it reports none."""
    calls: int = 1
    """The number of calls that this row counts. A row for a whole rollout counts 0 if each call has its own row."""


@dataclass(frozen=True, kw_only=True)
class Total:
    """Calls, tokens and dollars of one role, stage and model."""

    role: str
    stage: str
    model: str
    calls: int
    first_turns: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    usd: float | None = None
    """The cost in dollars that the model reports for its replies; None if it reports none."""
    written_tokens: int = 0
    """Prompt tokens that the endpoint wrote into its cache."""


class Journal:
    """One SQLite file in WAL mode. A reply is stored before the program uses it.

    If the process is killed, no stored reply is lost. If the power fails, only the replies since the last `sync` can
    be lost, and the file is not damaged (synchronous=NORMAL).
    """

    def __init__(self, path: Path | str, *, shared: Path | None = None) -> None:
        """`shared` is a journal that several runs use: each run takes the replies that other runs paid for."""
        self.path = Path(path)
        self._pending: list[tuple[JournalRow, asyncio.Future[None] | None]] = []
        """The rows of the next transaction, each with the future that its caller awaits (None if no caller waits)."""
        self._shared = Journal(shared) if shared else None
        _take_after_folder(self.path)
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.create_function("seal", -1, seal, deterministic=True)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA wal_autocheckpoint=4000")  # 16 MB: fewer, longer writes to the file itself
            self._create()
            self._count: int = self._db.execute("SELECT count(*) FROM replies").fetchone()[0]
        except UNREADABLE as error:
            if isinstance(error, sqlite3.Error) and is_disk_trouble(error):
                raise UserError(f"{path}: {disk_trouble(error)}") from None
            raise Damaged(f"{path}: the journal cannot be read ({error}); {WAY_OUT}") from None

    def _create(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._db.executescript(f"BEGIN; {_TABLES}; PRAGMA user_version={_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise Damaged(
                f"{self.path}: was written by another version of SkillOpt (use that version), or is damaged; {WAY_OUT}"
            )

    def get(self, key: str, attempt: int) -> dict[str, Any] | None:
        row = self._db.execute("SELECT reply FROM replies WHERE key=? AND attempt=?", (key, attempt)).fetchone()
        if row:
            return dict(json.loads(row[0]))
        return self._borrow(key, attempt, self._shared) if self._shared else None

    def _borrow(self, key: str, attempt: int, shared: Journal) -> dict[str, Any] | None:
        """Copy a reply that another run paid for. The copy does not count in this run's totals."""
        query = f"SELECT {REPLIES} FROM replies WHERE key=? AND attempt=?"  # noqa: S608
        if row := shared._db.execute(query, (key, attempt)).fetchone():
            self._db.execute(_INSERT, _sealed((0, *row[1:])))
            self._count += 1
        return shared.get(key, attempt)

    def put(self, record: JournalRow) -> None:
        """Store a reply. When this function returns, the reply is stored."""
        self._pending.append((record, None))
        self._flush()

    async def store(self, record: JournalRow) -> None:
        """Store a reply. When this function returns, the reply is stored. Replies that come at the same moment share
        one transaction."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        if not self._pending:
            loop.call_soon(self._flush_together)
        self._pending.append((record, stored))
        await stored

    def _flush_together(self) -> None:
        with contextlib.suppress(Exception):  # the callers that wait get the error
            self._flush()

    def _flush(self) -> None:
        """Write all pending rows in one transaction. If the transaction fails, no row is stored, and all callers that
        wait for a row get the error."""
        batch, self._pending = self._pending, []
        waiting = [stored for _, stored in batch if stored and not stored.done()]  # a future that is done was cancelled
        try:
            self._write([record for record, _ in batch])
        except BaseException as error:
            for stored in waiting:
                stored.set_exception(error)
            raise
        for stored in waiting:
            stored.set_result(None)

    def _write(self, records: list[JournalRow]) -> None:
        if not records:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(_INSERT, map(_row, records))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has ended the transaction already
                self._db.execute("ROLLBACK")
            raise
        self._count += len(records)
        if self._shared:
            self._shared.take(records)

    def take(self, records: list[JournalRow]) -> None:
        """Copy those rows of another journal that are missing in this journal."""
        self._write([record for record in records if self.get(record.key, record.attempt) is None])

    @property
    def size(self) -> int:
        """The number of replies in the journal."""
        return self._count

    def adopt(self, other: Path) -> int:
        """Copy another run's replies. The copies do not count in this run's totals. Return the number of copies; 0 if
        the other journal cannot be read."""
        try:
            self._db.execute("ATTACH ? AS other", (str(other),))
            columns = REPLIES.replace("paid", "0")
            copy = f"INSERT OR IGNORE INTO replies SELECT {columns}, seal({columns}) FROM other.replies"  # noqa: S608
            taken = self._db.execute(copy).rowcount
        except UNREADABLE:
            taken = 0
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("DETACH other")
        self._count += taken
        return taken

    def totals(self) -> list[Total]:
        """The costs since the run began, over all sessions."""
        self._flush()
        try:
            return _totals(self._db)
        except sqlite3.DatabaseError as error:
            if is_disk_trouble(error):
                raise
            raise Damaged(f"{self.path}: the journal cannot be read ({error}); {WAY_OUT}") from None

    def sync(self) -> int:
        """Sync all replies to disk, so they survive a power cut. Returns the number of replies."""
        self._flush()
        log = Path(f"{self.path}-wal")
        if log.exists():
            with log.open("rb") as file:
                os.fsync(file.fileno())
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # no effect while another process reads
        return self._count

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._flush()
        finally:
            self._db.close()
            if self._shared:
                self._shared.__exit__()


class SentMessage(BaseModel):
    role: str
    content: JsonValue


class OptimizerExchange(BaseModel):
    """A request to the optimizer, and its reply."""

    stage: str
    label: str
    """The name of the request. It consists of the seed, the stage, and the minibatch or epoch."""
    attempt: int
    messages: list[SentMessage]
    reply: str
    prompt_tokens: int
    completion_tokens: int


def read_exchanges(path: Path) -> list[OptimizerExchange]:
    """The requests to the optimizer and their replies; empty if the run's SkillOpt version did not store requests."""
    if not path.is_file():
        return []
    wanted = "SELECT stage, attempt, prompt_tokens, completion_tokens, reply FROM replies WHERE role = 'optimizer'"
    exchanges = []
    try:
        with _untouched(path) as db:
            for stage, attempt, prompt, completion, text in db.execute(wanted):
                reply = json.loads(text)
                if SENT in reply:
                    tokens = {"prompt_tokens": prompt, "completion_tokens": completion}
                    kept = {"stage": stage, "attempt": attempt, "reply": reply["text"], **tokens, **reply[SENT]}
                    exchanges.append(OptimizerExchange.model_validate(kept))
    except (*UNREADABLE, ValueError):
        return []
    return sorted(exchanges, key=lambda each: (each.label, each.attempt))


def read_totals(path: Path) -> list[Total]:
    """The costs of a run so far, read without changing its journal; empty if no journal can be read."""
    if not path.is_file():
        return []
    try:
        with _untouched(path) as db:
            return _totals(db)
    except UNREADABLE:
        return []


def _untouched(path: Path) -> contextlib.closing[sqlite3.Connection]:
    """Open a journal for reading only."""
    return contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True))


def _totals(db: sqlite3.Connection) -> list[Total]:
    names = Total.__dataclass_fields__
    return [Total(**dict(zip(names, row, strict=True))) for row in db.execute(_TOTALS).fetchall()]


def _take_after_folder(path: Path) -> None:
    """If the folder is private, make the journal private, too, so the journal stays private if it is copied or moved.
    SQLite gives the journal's other files the same access rights."""
    with contextlib.suppress(OSError):  # SQLite reports the error when it opens the file
        if path.parent.is_dir() and not path.parent.stat().st_mode & 0o077 and str(path) != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)


def _row(record: JournalRow) -> tuple[object, ...]:
    usd = None if record.usd is None else float(record.usd)
    values = {**{name: getattr(record, name) for name in record.__slots__}, "usd": usd, "paid": 1}
    values["reply"] = json.dumps(record.reply)
    return _sealed([values[name.strip()] for name in REPLIES.split(",")])


def _sealed(row: Sequence[object]) -> tuple[object, ...]:
    return (*row, seal(*row))
