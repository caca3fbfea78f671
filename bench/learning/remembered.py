"""A deterministic target that all cells share: a reply that one cell has paid for is given to all other cells.

Every seed and method begins with the same tasks under the same initial skill; with it, small models write replies up to
their limit. Each cell still counts such a rollout as its own. Replies in committed recordings are used too: another
machine rounds differently, so a cell with a mechanism off would otherwise also differ by its machine.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from skillopt.models.base import ChatModel, ChatReply, ChatRequest, Usage
from skillopt.models.call import request_key

from .cells import Cell
from .recording import KEY, RECORDINGS, Recording


class Remembered:
    """A ChatModel that calls another model only for new requests. Known replies are in an SQLite file or recorded."""

    deterministic = True

    def __init__(self, model: ChatModel, path: Path, recorded: Mapping[str, ChatReply]) -> None:
        self._model = model
        self._recorded = recorded
        self.name, self.endpoint = model.name, model.endpoint
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")

    async def chat(self, request: ChatRequest) -> ChatReply:
        key = request_key(self._model, request, "")
        found = self._db.execute("SELECT reply FROM replies WHERE key=?", (key,)).fetchone()
        if found:
            known = json.loads(found[0])
            return ChatReply(**{**known, "usage": Usage(**known["usage"])})
        reply = self._recorded.get(key[:KEY]) or await self._model.chat(request)
        self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, json.dumps(asdict(reply))))
        return reply

    async def close(self) -> None:
        self._db.close()
        await self._model.close()


def recorded_replies(cell: Cell) -> dict[str, ChatReply]:
    """Return the target's replies in the committed recordings of the same set and target, by key."""
    found = (Recording.read(path) for path in sorted(RECORDINGS.glob(f"{cell.set}-{cell.target}-*.jsonl")))
    return {key: replies[0] for recording in found for key, replies in recording.replies.items()}
