"""Sends a run to the page as it happens: new lines of events.jsonl and the heartbeat, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web
from pydantic import BaseModel, RootModel

from skillopt.keys import redact
from skillopt.record.base import Record
from skillopt.record.events import EventRow
from skillopt.record.run import Run
from skillopt_webui import view
from skillopt_webui.alive import holder
from skillopt_webui.answers import as_json

INTERVAL = 0.4
_QUIET = 15.0
"""After this many seconds without a message, a comment is sent, so that the connection is not closed as dead."""


class Working(Record):
    pid: int | None
    """The process that works on the run."""


async def stream(request: web.Request, run: Run) -> web.StreamResponse:
    """Send messages of four kinds:

    - `event`: a new line of events.jsonl. The message's id is the offset after this line; a browser that reconnects
      continues there.
    - `pulse` (the heartbeat) and `figures`, when they have changed
    - `state`, when a process begins or ends its work on the run
    """
    offset = _offset(request)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    sent: dict[str, BaseModel] = {}
    quiet = 0.0
    with contextlib.suppress(ConnectionResetError):  # the browser has closed the connection
        await response.prepare(request)
        await response.write(b"retry: 1000\n\n")
        while True:
            chunks = []
            for end, event in run.events_after(offset):
                offset = end
                chunks.append(_message("event", RootModel[EventRow](view.slim(event)), offset))
            pid = await asyncio.to_thread(holder, run.root)
            values: dict[str, BaseModel | None] = {"pulse": view.live(run) if pid else None, "state": Working(pid=pid)}
            if pid and values["pulse"] != sent.get("pulse"):
                values = {"figures": await asyncio.to_thread(view.figures, Run(run.files)), **values}
            for name, value in values.items():
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


def _offset(request: web.Request) -> int:
    raw = request.headers.get("Last-Event-ID") or request.query.get("offset", "0")
    return int(raw) if raw.isdecimal() and len(raw) < 16 else 0


def _message(name: str, value: BaseModel, offset: int | None = None) -> bytes:
    head = f"id: {offset}\n" if offset is not None else ""
    return f"{head}event: {name}\ndata: {redact(as_json(value))}\n\n".encode("utf-8", "replace")
