"""The records of a harvest: sessions, corrections, tasks and what is remembered of each file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from skillopt.record.base import Document, Record
from skillopt.tasks.check_fields import MinedCheck


class SessionTurn(Record):
    """A turn: the user's text, or the agent's, until the other one speaks. The text is redacted."""

    role: Literal["user", "assistant"]
    text: str
    line: int
    """The line in the session's file, from 1; in a session without lines, the number of the message."""
    last_line: int
    tools: tuple[str, ...] = ()
    """Tools that ran, each with its main argument."""
    declined: bool = False
    """Did the user decline a tool call?"""
    moment: str = ""
    """As the transcript says it; empty if it does not."""

    @property
    def work(self) -> str:
        """The words and the tool calls, as one text."""
        return "\n".join([self.text, *self.tools]).strip()


class SessionFacts(Record):
    """What a transcript says about its session."""

    cwd: str = ""
    headless: bool = False
    subagent: bool = False
    forked: bool = False
    """Begins with a copy of another session, at times of its own."""
    skills: tuple[str, ...] = ()
    """Names of the skills that were loaded."""


class AgentSession(SessionFacts):
    """One session, or a part of a long one."""

    source: str
    id: str
    turns: tuple[SessionTurn, ...]


class Correction(Record):
    """A place in a session at which the user corrected the agent."""

    source: str
    session: str
    line: int
    """The line of the request that went wrong."""
    last_line: int
    """The last line of the corrected answer."""
    request: str
    rejected: str
    """The agent's work before the correction."""
    words: str
    """The user's correction."""
    corrected: str = ""
    """The agent's work after it; empty if the session ends."""
    skills: tuple[str, ...] = ()
    rule: str = ""
    """The rule in a sentence, if a model mined it; empty without a model."""
    instruction: str = ""
    """The request as a task that stands alone; empty: the request as it is."""
    context: str = ""
    check: MinedCheck | None = None
    moment: str = ""
    """Time of the user's words, as the transcript has it."""
    forked: bool = False
    """Its session begins with a copy of another."""

    @property
    def key(self) -> str:
        return f"{self.source}:{self.session}:{self.line}"

    @property
    def citation(self) -> str:
        return f"{self.source}:{self.session}:{self.line}-{self.last_line}"


Status = Literal["rule", "candidate", "kept", "dropped"]


class MinedTask(Record):
    """A correction with all its occurrences."""

    id: str
    rule: str
    check: MinedCheck
    occurrences: tuple[Correction, ...]
    skill: str = ""
    """The loaded skill that it belongs to; empty: the one that the user names."""
    written: bool = False
    """A person wrote it as an eval: it needs no correction."""

    @property
    def sessions(self) -> int:
        return len({(each.source, each.session) for each in self.occurrences})

    @property
    def is_rule(self) -> bool:
        """Does it come from two sessions at least?"""
        return self.written or self.sessions >= 2


class FileState(SessionFacts):
    """The position at which the next read of a file begins, and what was known of its session there."""

    size: int
    mtime_ns: int
    head: str
    """Checksum of the first bytes: a file that was written anew is read from its beginning."""
    head_size: int
    offset: int = 0
    line: int = 0
    session: str = ""


def _below_home(path: Path | None) -> str:
    """Paths are stored with `~` if they are in the home folder, since its name may be a person's."""
    home = Path.home()
    return str(Path("~", path.relative_to(home)) if path and path.is_relative_to(home) else path or "")


UserPath = Annotated[
    Path | None,
    BeforeValidator(lambda path: Path(path).expanduser().resolve() if path else None),
    PlainSerializer(_below_home),
]


class SourceSelection(Record):
    """What the user named; `--since last` reads it again."""

    source: str
    path: UserPath = None
    """A file or folder in place of the agent's own."""
    project: UserPath = None
    """Only sessions that worked in this folder, or below it."""
    headless: bool = False
    subagents: bool = False
    since: float = Field(default=0.0, exclude=True)
    """Only files that changed after this moment, in seconds since 1970."""


class LastHarvest(Record):
    of: SourceSelection
    began: float
    """In seconds since 1970."""


class HarvestState(Document):
    """`state.json`. Files are named by a checksum of their path."""

    sources: tuple[LastHarvest, ...] = ()
    files: dict[str, FileState] = Field(default={})
    removed: dict[str, int] = Field(default={})
    """Secrets and personal data that were removed, by kind, over all harvests."""


class HarvestTasks(Document):
    """`tasks.json`."""

    miner: str
    """`heuristic`, or the model's name."""
    tasks: tuple[MinedTask, ...] = ()


class TaskDecision(Record):
    """One line of `decisions.jsonl`."""

    task: str
    action: Literal["keep", "drop", "edit", "merge"]
    into: str = ""
    """merge: the other task."""
    rule: str = ""
    check: MinedCheck | None = None
    instruction: str = ""
    """edit: the text of the task, if it has one occurrence."""


class CheckTrial(Record):
    """A task's check, tried on an occurrence's own answers."""

    rejected_fails: bool | None = None
    """None: it was not tried."""
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
