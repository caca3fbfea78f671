"""What people add to a run: a name, tags and a note; comments and ratings on items and lines."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from pydantic import Field

from skillopt.keys import refuse_secrets
from skillopt.record.base import Record
from skillopt.record.comments import Comment, add_comment
from skillopt.record.files import write_json
from skillopt.record.run import Labels, Run
from skillopt_webui.answers import RUN, Body, answer, body, run_of

routes = web.RouteTableDef()


class LabelsBody(Body):
    name: Annotated[str, Field(max_length=80)] = ""
    note: Annotated[str, Field(max_length=4000)] = ""
    tags: list[Annotated[str, Field(max_length=40)]] = Field(default=[], max_length=20)


class CommentBody(Body):
    """On an `item` or a `line`. The last one on each counts."""

    kind: str = ""
    about: str = ""
    split: str = ""
    rating: str = ""
    """good, bad or none."""
    text: str = ""


class Comments(Record):
    comments: list[Comment]
    path: str


@routes.get(RUN + "/labels")
async def labels(request: web.Request) -> web.Response:
    return answer(request, run_of(request).labels)


@routes.post(RUN + "/labels")
async def label(request: web.Request) -> web.Response:
    run, wish = run_of(request), await body(request, LabelsBody)
    tags = sorted({tag.strip() for tag in wish.tags if tag.strip()})
    made = Labels(name=wish.name.strip(), note=wish.note.strip(), tags=tuple(tags))
    refuse_secrets(" ".join([made.name, made.note, *tags]), "the labels")
    await asyncio.to_thread(write_json, run.files.labels, made)
    return answer(request, made)


@routes.get(RUN + "/comments")
async def comments(request: web.Request) -> web.Response:
    return answer(request, await asyncio.to_thread(_comments, run_of(request)))


@routes.post(RUN + "/comments")
async def comment(request: web.Request) -> web.Response:
    run, wish = run_of(request), await body(request, CommentBody)
    refuse_secrets(wish.text, "the comment")
    await asyncio.to_thread(add_comment, run.files, **dict(wish))
    return answer(request, await asyncio.to_thread(_comments, run))


def _comments(run: Run) -> Comments:
    return Comments(comments=run.comments, path=str(run.files.comments))
