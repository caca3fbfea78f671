"""Letters of a run whose optimizer is a handoff: the page shows them and takes replies."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from aiohttp import web

from skillopt.models.handoff import Box, Letter
from skillopt.models.handoff.box import box_of
from skillopt.models.handoff.page import page
from skillopt.record.base import Record
from skillopt.record.run import Run
from skillopt.training.requests.answers import hand_in
from skillopt_webui.answers import RUN, STATE, Body, answer, body, number, run_of
from skillopt_webui.places import NotThereError, inside, readable
from skillopt_webui.settings import PageSettings

routes = web.RouteTableDef()
LETTERS = RUN + "/letters"


def _box(request: web.Request) -> Box:
    return letters_of(run_of(request), request.app[STATE].settings)


def letters_of(run: Run, settings: PageSettings) -> Box:
    """The box of a run, which must lie under the folders: links are followed first."""
    box = box_of(run.root)
    if box.folder.exists() and not inside(box.folder, readable(settings)):
        raise NotThereError(f"the letters are outside of {settings.reach}")
    return box


class LetterRow(Record):
    """A letter without paths on the disk."""

    optional: ClassVar = frozenset({"text"})

    number: int
    stage: str
    problem: str
    """What was wrong with the last reply."""
    text: str | None = None


class Letters(Record):
    letters: list[LetterRow]
    """Those that wait for a reply."""
    answered: int


class ReplyBody(Body):
    reply: str = ""


def open_letters(box: Box) -> Letters:
    letters = box.letters()
    waiting = [_row(letter) for letter in letters if letter.open]
    return Letters(letters=waiting, answered=len(letters) - len(waiting))


def _row(letter: Letter, text: str | None = None) -> LetterRow:
    return LetterRow(number=letter.number, stage=letter.stage, problem=letter.row()["problem"], text=text)


@routes.get(LETTERS)
async def letters(request: web.Request) -> web.Response:
    return answer(request, await asyncio.to_thread(open_letters, _box(request)))


@routes.get(LETTERS + r"/{number:\d+}")
async def letter(request: web.Request) -> web.Response:
    box, wanted = _box(request), number(request.match_info["number"])
    found = await asyncio.to_thread(box.letter, wanted)
    return answer(request, await asyncio.to_thread(lambda: _row(found, page(found))))


@routes.post(LETTERS + r"/{number:\d+}")
async def reply(request: web.Request) -> web.Response:
    """Hand in a reply, checked as `skillopt answer` does."""
    box, wanted = _box(request), number(request.match_info["number"])
    text = (await body(request, ReplyBody)).reply.encode("utf-8", "replace")
    await asyncio.to_thread(hand_in, box, wanted, text)
    return answer(request, await asyncio.to_thread(open_letters, box))
