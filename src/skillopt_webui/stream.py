"""A run as it happens: new lines of events.jsonl and the trainer's pulse, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from skillopt.keys import redact
from skillopt.run.directory import RunDirectory
from skillopt_webui import view
from skillopt_webui.alive import holder

INTERVAL = 0.4
_MOST = 512 * 1024
"""Bytes of events that are read at once."""
_QUIET = 15.0
"""Seconds after which a comment keeps the connection from being taken for dead."""


async def stream(request: web.Request, run: RunDirectory) -> web.StreamResponse:
    """`event` for each new line after `offset`, `pulse` when it changes, `state` when a trainer comes or goes.

    The id of an event is the place behind it, so that a browser that reconnects continues there.
    """
    offset = _offset(request)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    sent: dict[str, Any] = {}
    quiet = 0.0
    with contextlib.suppress(ConnectionResetError):  # the reader is gone
        await response.prepare(request)
        await response.write(b"retry: 1000\n\n")
        while True:
            chunks = []
            for place, event in new_events(run.events, offset):
                offset = place
                chunks.append(_message("event", view.slim(event), place))
            pid = await asyncio.to_thread(holder, run.root)
            for name, value in (("pulse", view.live(run) if pid else None), ("state", {"pid": pid})):
                if value is not None and sent.get(name) != value:
                    sent[name] = value
                    chunks.append(_message(name, value))
            quiet = 0.0 if chunks else quiet + INTERVAL
            if quiet > _QUIET:
                chunks, quiet = [b": here\n\n"], 0.0
            if chunks:
                await response.write(b"".join(chunks))
            await asyncio.sleep(INTERVAL)
    return response


def new_events(path: Path, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines behind `offset`, each with the place behind it. A file that shrank is read from its start."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            place = offset if offset <= size else 0
            file.seek(place)
            data = file.read(_MOST)
    except OSError:
        return
    *lines, _ = data.split(b"\n")
    for line in lines:
        place += len(line) + 1
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield place, event


def _offset(request: web.Request) -> int:
    raw = request.headers.get("Last-Event-ID") or request.query.get("offset", "0")
    return int(raw) if raw.isdecimal() and len(raw) < 16 else 0


def _message(name: str, value: Any, place: int | None = None) -> bytes:
    head = f"id: {place}\n" if place is not None else ""
    return f"{head}event: {name}\ndata: {redact(json.dumps(value, ensure_ascii=False))}\n\n".encode("utf-8", "replace")
