"""Answers requests about the letters of a run whose optimizer is a handoff: shows them and accepts replies."""

from __future__ import annotations

from typing import ClassVar

from skillopt.models.handoff import Box, Letter
from skillopt.models.handoff.box import box_of
from skillopt.models.handoff.page import page
from skillopt.record.base import Record
from skillopt.record.run import Run
from skillopt.training.requests.answers import hand_in
from skillopt_webui.answers import RUN, Body, Call, Routes
from skillopt_webui.places import NotThereError, inside, readable
from skillopt_webui.settings import PageSettings

routes = Routes()
LETTERS = RUN + "/letters"


def letters_of(run: Run, settings: PageSettings) -> Box:
    """The box of a run's letters. Raises NotThereError if its real path is outside of the page's folders."""
    box = box_of(run.root)
    if box.folder.exists() and not inside(box.folder, readable(settings)):
        raise NotThereError(f"the letters are outside of {settings.reach}")
    return box


class LetterRow(Record):
    """A letter as the page shows it, without the paths of its files."""

    optional: ClassVar = frozenset({"text"})

    number: int
    stage: str
    problem: str
    """The problem with the last reply; empty if there is none."""
    text: str | None = None


class Letters(Record):
    letters: list[LetterRow]
    """The letters that wait for a reply."""
    answered: int


class ReplyBody(Body):
    reply: str = ""


def open_letters(box: Box) -> Letters:
    letters = box.letters()
    waiting = [_row(letter) for letter in letters if letter.open]
    return Letters(letters=waiting, answered=len(letters) - len(waiting))


def _row(letter: Letter, text: str | None = None) -> LetterRow:
    return LetterRow(number=letter.number, stage=letter.stage, problem=letter.row()["problem"], text=text)


@routes.read(LETTERS)
def letters(call: Call[Body]) -> Letters:
    return open_letters(letters_of(call.run, call.settings))


@routes.read(LETTERS + r"/{number:\d+}")
def letter(call: Call[Body]) -> LetterRow:
    wanted = letters_of(call.run, call.settings).letter(call.number("number"))
    return _row(wanted, page(wanted))


@routes.change(LETTERS + r"/{number:\d+}", ReplyBody)
def reply(call: Call[ReplyBody]) -> Letters:
    """Check and hand in a reply, as `skillopt answer` does."""
    box = letters_of(call.run, call.settings)
    hand_in(box, call.number("number"), call.wish.reply.encode("utf-8", "replace"))
    return open_letters(box)
