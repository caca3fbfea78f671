"""The records of a harvest: sessions, corrections, tasks, and how far each file was read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from skillopt.record.base import Document, Record
from skillopt.tasks.check_fields import MinedCheck


class SessionTurn(Record):
    """A turn of a session: all text of the user until the agent speaks, or all text of the agent until the user speaks.
    The text is redacted."""

    role: Literal["user", "assistant"]
    text: str
    line: int
    """The number of the turn's first line in the session's file, counted from 1. If the file has no lines,
    this is the number of the message."""
    last_line: int
    tools: tuple[str, ...] = ()
    """Tool calls, each with its main argument."""
    declined: bool = False
    """True if the user declined a tool call."""
    moment: str = ""
    """The time of the turn, as the transcript has it; empty if the transcript has none."""

    @property
    def work(self) -> str:
        """The turn's text and tool calls, as one text."""
        return "\n".join([self.text, *self.tools]).strip()


class SessionFacts(Record):
    """Facts about a session, from its transcript."""

    cwd: str = ""
    headless: bool = False
    subagent: bool = False
    forked: bool = False
    """True if the session begins with a copy of another session. Copied lines may have different times than the
    originals."""
    skills: tuple[str, ...] = ()
    """Names of the skills that were loaded."""


class AgentSession(SessionFacts):
    """One session, or a part of a long one."""

    source: str
    id: str
    turns: tuple[SessionTurn, ...]


class Correction(Record):
    """A correction: a request, the agent's work on it, the user's words about this work, and the agent's work after
    that."""

    source: str
    session: str
    line: int
    """The line number of the request; the agent's work on this request was corrected."""
    last_line: int
    """The last line of the corrected answer."""
    request: str
    rejected: str
    """The agent's work before the correction."""
    words: str
    """The user's correction."""
    corrected: str = ""
    """The agent's work after the correction; empty if the session ends there."""
    skills: tuple[str, ...] = ()
    rule: str = ""
    """The rule in a sentence, written by a model; empty if the miner used no model."""
    instruction: str = ""
    """The request, rewritten as a task that can be understood without the session; if empty, `request` is the task."""
    context: str = ""
    check: MinedCheck | None = None
    moment: str = ""
    """The time of the user's words, as the transcript has it."""
    forked: bool = False
    """True if the session begins with a copy of another session."""

    @property
    def key(self) -> str:
        return f"{self.source}:{self.session}:{self.line}"

    @property
    def citation(self) -> str:
        return f"{self.source}:{self.session}:{self.line}-{self.last_line}"


Status = Literal["rule", "candidate", "kept", "dropped"]


class MinedTask(Record):
    """A task: a rule, its check, and all corrections that ask for this rule."""

    id: str
    rule: str
    check: MinedCheck
    occurrences: tuple[Correction, ...]
    skill: str = ""
    """The loaded skill to which the task belongs. If this is empty, the task belongs to the skill that the user
    names."""
    written: bool = False
    """True if a person wrote the task as an eval; then the task needs no correction."""

    @property
    def sessions(self) -> int:
        return len({(each.source, each.session) for each in self.occurrences})

    @property
    def is_rule(self) -> bool:
        """True if the task comes from at least two sessions, or from an eval."""
        return self.written or self.sessions >= 2


class FileState(SessionFacts):
    """The position in a file at which the next harvest begins to read, and the facts about the session up to this
    position."""

    size: int
    mtime_ns: int
    head: str
    """Checksum of the file's first bytes. If the checksum changes, the file is read again from its beginning."""
    head_size: int
    offset: int = 0
    line: int = 0
    session: str = ""


def _below_home(path: Path | None) -> str:
    """Return a path with `~` in place of the home folder, because the home folder's name may be a person's name."""
    home = Path.home()
    return str(Path("~", path.relative_to(home)) if path and path.is_relative_to(home) else path or "")


UserPath = Annotated[
    Path | None,
    BeforeValidator(lambda path: Path(path).expanduser().resolve() if path else None),
    PlainSerializer(_below_home),
]


class SourceSelection(Record):
    """The source and the filters that the user named. They are stored, because `--since last` uses them again."""

    source: str
    path: UserPath = None
    """A file or folder that is read instead of the agent's folder of transcripts."""
    project: UserPath = None
    """If this is set, only sessions that worked in this folder or below it are read."""
    headless: bool = False
    subagents: bool = False
    since: float = Field(default=0.0, exclude=True)
    """Only files that changed after this time are read. The time is in seconds since 1970."""


class LastHarvest(Record):
    of: SourceSelection
    began: float
    """The time at which the harvest began, in seconds since 1970."""


class HarvestState(Document):
    """The content of `state.json`. The keys of `files` are checksums of paths."""

    sources: tuple[LastHarvest, ...] = ()
    files: dict[str, FileState] = Field(default={})
    removed: dict[str, int] = Field(default={})
    """The number of secrets and personal data that all harvests together removed, by kind."""


class HarvestTasks(Document):
    """The content of `tasks.json`."""

    miner: str
    """What found the corrections: `heuristic`, or the name of a model."""
    tasks: tuple[MinedTask, ...] = ()


class TaskDecision(Record):
    """A reviewer's decision on a task: one line of `decisions.jsonl`."""

    task: str
    action: Literal["keep", "drop", "edit", "merge"]
    into: str = ""
    """For `merge`: the id of the task that this task is merged into."""
    rule: str = ""
    check: MinedCheck | None = None
    instruction: str = ""
    """For `edit`: the new instruction for the first occurrence of the task."""


class CheckTrial(Record):
    """The results of a task's check on the two answers of one correction: the rejected and the corrected answer."""

    rejected_fails: bool | None = None
    """True if the rejected answer fails the check (it should fail); None if the check was not tried."""
    corrected_passes: bool | None = None
    reason: str = ""

    @property
    def tells_apart(self) -> bool:
        return self.rejected_fails is True and self.corrected_passes is True


class ReviewedTask(Record):
    """A task as a reviewer sees it."""

    task: MinedTask
    status: Status
    trials: tuple[CheckTrial, ...] = Field(default=())


def short_id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
