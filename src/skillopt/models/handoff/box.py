"""A folder of letters: `0001.json` is a request, `0001.md` is the same request as a page for people, `0001.reply.json`
is its reply.

The file `0001.json` reserves the letter's number; its text is written all at once. An earlier letter with the same
request is found by its hash, so a resumed run does not write a letter twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from skillopt.errors import UserError
from skillopt.models.base import ChatReply, ChatRequest, JsonObject, Message
from skillopt.models.handoff.page import page, problem_page
from skillopt.models.handoff.schema import excess, problems
from skillopt.models.structured import parse
from skillopt.provider_table import path_of, provider_of
from skillopt.record.directory import RunDirectory, resolve_run
from skillopt.record.files import json_text, plain, read_bytes, read_json, write_atomic
from skillopt.skill.folder import NotAFileError

LONGEST_REPLY = 1 << 20
"""The maximum number of bytes of a reply; no stage can use more."""
_REQUEST = re.compile(r"(\d{4,})\.json")


class BadReply(UserError):  # noqa: N818 - what it is
    """A reply that does not fit its letter."""

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__(f"the reply to letter {name} does not fit: {'; '.join(problems)}")
        self.problems = problems


class LetterSchema(TypedDict):
    name: str
    body: JsonObject


class LetterState(TypedDict):
    """The state of a letter, for programs."""

    number: int
    stage: str
    open: bool
    problem: str
    """The problem with the last reply; empty if there is none."""
    page: str
    request: str
    reply: str


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One request to the optimizer, as it is in its file."""

    folder: Path
    number: int
    run: str
    hash: str
    stage: str
    messages: list[Message]
    schema: LetterSchema | None
    """The schema of the reply; None if the reply is plain text."""
    max_tokens: int | None

    @property
    def name(self) -> str:
        return f"{self.number:04d}"

    @property
    def request(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def page(self) -> Path:
        return self.folder / f"{self.name}.md"

    @property
    def reply(self) -> Path:
        return self.folder / f"{self.name}.reply.{'json' if self.schema else 'md'}"

    @property
    def problem(self) -> Path:
        return self.folder / f"{self.name}.problem.md"

    @property
    def open(self) -> bool:
        return not os.path.lexists(self.reply)

    def check_size(self, size: int) -> None:
        if size > LONGEST_REPLY:
            most = f"{LONGEST_REPLY / 1e6:.1f} MB"
            raise BadReply(self.name, [f"it has {size / 1e6:.1f} MB, and may have at most {most}"])

    def checked(self, data: bytes) -> str:
        """Check a reply. Returns its text for the journal; raises BadReply if it does not fit."""
        self.check_size(len(data))
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BadReply(self.name, ["it is not UTF-8 text"]) from None
        if not text.strip():
            raise BadReply(self.name, ["it was empty"])
        if self.schema is None:
            return text.strip()
        try:
            value = parse(ChatReply(text=text))
        except (ValueError, RecursionError) as error:
            raise BadReply(self.name, [str(error) or "it is nested too deeply"]) from None
        if misfits := problems(value, self.schema["body"]):
            raise BadReply(self.name, misfits)
        return json.dumps(plain(value), ensure_ascii=False)

    def read_reply(self) -> str:
        """Check the reply's file and return its text; raises BadReply, or OSError if there is no file."""
        try:
            return self.checked(read_bytes(self.reply, LONGEST_REPLY + 1))
        except NotAFileError as error:
            raise BadReply(self.name, [f"it {error.strerror}"]) from None

    def row(self) -> LetterState:
        """The state of the letter for programs: the paths of its files, and the problem with the last reply."""
        wrong = ""
        with contextlib.suppress(OSError):
            wrong = read_bytes(self.problem, LONGEST_REPLY).decode("utf-8", "replace") if self.open else ""
        return {
            "number": self.number,
            "stage": self.stage,
            "open": self.open,
            "problem": wrong,
            "page": str(self.page),
            "request": str(self.request),
            "reply": str(self.reply),
        }


class Box:
    """The letters of one run. Other runs may keep letters in the same folder."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder
        self.run = run
        self._numbers: dict[str, int] | None = None

    def letters(self) -> list[Letter]:
        """All letters of this run, by number."""
        letters = (self._read(number) for number in sorted(self._taken()))
        return [letter for letter in letters if letter and self.run in {"", letter.run}]

    def open_letters(self) -> list[Letter]:
        return [letter for letter in self.letters() if letter.open]

    def letter(self, number: int) -> Letter:
        """The letter with this number. Raises UserError if there is none, or if its schema has something that SkillOpt
        never writes."""
        letter = self._read(number)
        if letter is None or self.run not in {"", letter.run}:
            waiting = ", ".join(str(each.number) for each in self.open_letters()) or "none"
            raise UserError(f"{self.folder}: there is no letter {number}; open letters: {waiting}")
        if letter.schema and (unusual := excess(letter.schema.get("body"))):
            raise UserError(
                f"{letter.request}: the schema of the reply has something that SkillOpt never writes: {unusual}"
            )
        return letter

    def post(self, request: ChatRequest, stage: str) -> Letter:
        """The letter of a request: a letter that was written earlier for the same request, or a new one."""
        asked: JsonObject = {
            "run": self.run,
            "stage": stage,
            "messages": plain(list(request.messages)),
            "schema": {"name": request.schema.name, "body": request.schema.body} if request.schema else None,
            "max_tokens": request.max_tokens,
        }
        content = json.dumps([asked, request.seed, request.effort, request.tools], sort_keys=True, default=dict)
        digest = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
        if self._numbers is None:
            self._numbers = {letter.hash: letter.number for letter in self.letters()}
        if digest not in self._numbers:
            self._numbers[digest] = self._take_number({**asked, "hash": digest})
        letter = self.letter(self._numbers[digest])
        if not letter.page.exists():
            write_atomic(letter.page, page(letter))
        return letter

    def hand_in(self, number: int, data: bytes) -> Letter:
        """Store a reply for the run. Raises BadReply if it does not fit, and UserError if there is no such letter or
        the letter already has a reply."""
        letter = self.letter(number)
        if not letter.open:
            raise UserError(f"{letter.reply}: letter {number} already has a reply")
        letter.checked(data)
        if not _create(letter.reply, data.decode()):
            raise UserError(f"{letter.reply}: letter {number} was answered by somebody else at the same moment")
        letter.problem.unlink(missing_ok=True)
        return letter

    def send_back(self, letter: Letter, misfits: list[str]) -> None:
        """Open a letter again because its reply does not fit. Writes a page that says why, and renames the reply's
        file; if that file is a link or a pipe, it is removed instead."""
        refused = letter.reply.with_name(f"{letter.name}.refused{letter.reply.suffix}")
        keep = not letter.reply.is_symlink() and (letter.reply.is_file() or letter.reply.is_dir())
        write_atomic(letter.problem, problem_page(letter, misfits, refused.name if keep else ""))
        if keep:
            letter.reply.replace(refused)
        else:
            letter.reply.unlink()

    def _take_number(self, asked: JsonObject) -> int:
        """Write a request under a new number and return the number. A number that has a letter or a reply is not used
        again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number = max(self._taken(), default=0) + 1
        while any(self.folder.glob(f"{number:04d}.reply.*")) or not _create(
            self.folder / f"{number:04d}.json", json_text({"number": number, **asked})
        ):
            number += 1
        return number

    def _taken(self) -> Iterator[int]:
        if self.folder.is_dir():
            matches = (_REQUEST.fullmatch(path.name) for path in self.folder.iterdir())
            yield from (int(match[1]) for match in matches if match)

    def _read(self, number: int) -> Letter | None:
        """The request in a letter's file; None if the file is missing or SkillOpt did not write it."""
        path = self.folder / f"{number:04d}.json"
        try:
            value = read_json(path)
            fields = {name: value[name] for name in ("run", "hash", "stage", "messages", "schema", "max_tokens")}
            return Letter(folder=self.folder, number=number, **fields)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None


def meant(path: Path) -> Path:
    """The path itself if it is a folder of letters; else the folder of the run that the path names."""
    return path if _holds_letters(path) else resolve_run(path)


def _holds_letters(path: Path) -> bool:
    return path.is_dir() and any(_REQUEST.fullmatch(each.name) for each in path.iterdir())


def box_of(path: Path) -> Box:
    """The letters of a path: of a run's folder, of the newest run in a folder of runs, or of a folder of letters."""
    path = meant(path)
    run = RunDirectory(path)
    if run.config_json.exists():
        model = str(read_json(run.config_json).get("models.optimizer_model", ""))
        return Box(letters_folder(model, run), path.resolve().name)
    for folder in (run.letters, path):
        if _holds_letters(folder):
            return Box(folder, "")
    raise UserError(f"{path}: is neither a run's folder nor a folder of runs or letters")


def letters_folder(model: str, run: RunDirectory) -> Path:
    """The folder of the letters: for `handoff`, a folder in the run's folder; for `handoff:FOLDER`, `FOLDER`."""
    folder = path_of(model) if provider_of(model).human_paced else ""
    return Path(folder) if folder else run.letters


def _create(path: Path, text: str) -> bool:
    """Reserve a file's name, then write its whole text at once; returns False if the name is taken."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    write_atomic(path, text)
    return True
