"""Letters of a run whose optimizer is a handoff: the page shows them and takes replies."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from skillopt.models.handoff import Box, Letter
from skillopt.models.handoff.box import box_of
from skillopt.models.handoff.page import page
from skillopt.run.directory import RunDirectory
from skillopt_webui.answers import RUN, STATE, answer, body, number, run_of, text
from skillopt_webui.places import NotThereError, inside, readable
from skillopt_webui.settings import Settings

routes = web.RouteTableDef()
LETTERS = RUN + "/letters"


def _box(request: web.Request) -> Box:
    return letters_of(run_of(request), request.app[STATE].settings)


def letters_of(run: RunDirectory, settings: Settings) -> Box:
    """The box of a run, which must lie under the page's folders: links are followed first."""
    box = box_of(run.root)
    if box.folder.exists() and not inside(box.folder, readable(settings)):
        raise NotThereError("the letters are outside of the page's folders; start it with --data FOLDER")
    return box


def _rows(box: Box) -> dict[str, Any]:
    letters = box.letters()
    waiting = [_row(letter) for letter in letters if letter.open]
    return {"letters": waiting, "answered": len(letters) - len(waiting)}


def _row(letter: Letter) -> dict[str, Any]:
    """Without places on the disk; what was wrong is only read from a file of ours."""
    wrong = letter.row()["problem"] if not letter.problem.is_symlink() else ""
    return {"number": letter.number, "stage": letter.stage, "problem": wrong}


@routes.get(LETTERS)
async def letters(request: web.Request) -> web.Response:
    return answer(request, await asyncio.to_thread(_rows, _box(request)))


@routes.get(LETTERS + r"/{number:\d+}")
async def letter(request: web.Request) -> web.Response:
    box, wanted = _box(request), number(request.match_info["number"])
    found = await asyncio.to_thread(box.letter, wanted)
    return answer(request, _row(found) | {"text": page(found)})


@routes.post(LETTERS + r"/{number:\d+}")
async def reply(request: web.Request) -> web.Response:
    """Hand in a reply, checked as `skillopt answer` does."""
    box, wanted = _box(request), number(request.match_info["number"])
    given = text(await body(request), "reply").encode("utf-8", "replace")
    await asyncio.to_thread(box.hand_in, wanted, given)
    return answer(request, await asyncio.to_thread(_rows, box))
