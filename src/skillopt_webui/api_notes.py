"""Handles requests that read or change what people add to a run: its name, its tags, its note, and comments and ratings
on items and lines."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from skillopt.keys import refuse_secrets
from skillopt.record.base import Record
from skillopt.record.comments import Comment, add_comment
from skillopt.record.files import write_json
from skillopt.record.run import Labels, Run
from skillopt_webui.answers import RUN, Body, Call, Routes

routes = Routes()


class LabelsBody(Body):
    name: Annotated[str, Field(max_length=80)] = ""
    note: Annotated[str, Field(max_length=4000)] = ""
    tags: list[Annotated[str, Field(max_length=40)]] = Field(default=[], max_length=20)


class CommentBody(Body):
    """A comment on an item or a line of the skill (`kind` is `item` or `line`). Only the last comment on an item or a
    line is used."""

    kind: str = ""
    about: str = ""
    split: str = ""
    rating: str = ""
    """The rating: `good` or `bad`; empty for a comment without a rating."""
    text: str = ""


class Comments(Record):
    comments: list[Comment]
    path: str


@routes.read(RUN + "/labels")
def labels(call: Call[Body]) -> Labels:
    return call.run.labels


@routes.change(RUN + "/labels", LabelsBody)
def label(call: Call[LabelsBody]) -> Labels:
    wish = call.wish
    tags = sorted({tag.strip() for tag in wish.tags if tag.strip()})
    made = Labels(name=wish.name.strip(), note=wish.note.strip(), tags=tuple(tags))
    refuse_secrets(" ".join([made.name, made.note, *tags]), "the labels")
    write_json(call.run.files.labels, made)
    return made


@routes.read(RUN + "/comments")
def comments(call: Call[Body]) -> Comments:
    return _comments(call.run)


@routes.change(RUN + "/comments", CommentBody)
def comment(call: Call[CommentBody]) -> Comments:
    refuse_secrets(call.wish.text, "the comment")
    add_comment(call.run.files, **dict(call.wish))
    return _comments(call.run)


def _comments(run: Run) -> Comments:
    return Comments(comments=run.comments, path=str(run.files.comments))
