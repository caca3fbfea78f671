"""What people add to a run: a name, tags and a note; comments and ratings on items and lines."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from skillopt.errors import UserError
from skillopt.keys import refuse_secrets
from skillopt.run.comments import add_comment, read_comments
from skillopt.run.directory import RunDirectory
from skillopt.run.files import write_json
from skillopt_webui.answers import RUN, answer, body, run_of, text
from skillopt_webui.runs import labels_of

routes = web.RouteTableDef()
_LONGEST = {"name": 80, "note": 4000}


@routes.get(RUN + "/labels")
async def labels(request: web.Request) -> web.Response:
    run = run_of(request)
    known = labels_of(run.labels) if run.labels.exists() else {"name": "", "tags": [], "note": ""}
    return answer(request, known)


@routes.post(RUN + "/labels")
async def label(request: web.Request) -> web.Response:
    """`name`, `note`, and `tags` as a list."""
    run, given = run_of(request), await body(request)
    known = {name: text(given, name).strip() for name in _LONGEST}
    for name, most in _LONGEST.items():
        if len(known[name]) > most:
            raise UserError(f"{name}: has more than {most} characters")
    tags = given.get("tags", [])
    if not isinstance(tags, list) or len(tags) > 20 or not all(isinstance(t, str) and len(t) <= 40 for t in tags):
        raise UserError("tags: must be a list of at most 20 texts of at most 40 characters")
    refuse_secrets(" ".join([*known.values(), *tags]), "the labels")
    kept = {**known, "tags": sorted({tag.strip() for tag in tags if tag.strip()})}
    await asyncio.to_thread(write_json, run.labels, kept)
    return answer(request, kept)


@routes.get(RUN + "/comments")
async def comments(request: web.Request) -> web.Response:
    return answer(request, await asyncio.to_thread(_shown, run_of(request)))


@routes.post(RUN + "/comments")
async def comment(request: web.Request) -> web.Response:
    """On an `item` or a `line`: a `rating` (good, bad or none) and a `text`. The last one on a place counts."""
    run, given = run_of(request), await body(request)
    fields = {name: text(given, name) for name in ("kind", "about", "split", "rating", "text")}
    refuse_secrets(fields["text"], "the comment")
    await asyncio.to_thread(add_comment, run, **fields)
    return answer(request, await asyncio.to_thread(_shown, run))


def _shown(run: RunDirectory) -> dict[str, Any]:
    found = read_comments(run.comments)
    return {"comments": [each.model_dump(mode="json") for each in found], "path": str(run.comments)}
