"""Recordings: every reply of a finished cell under the hash of its request, so the run can be repeated without models.

The hash is the same as in the journal: of model, messages, parameters and schema. The first line of a recording says
what made it. One request may have several replies; a replay gives them in their order.

The optimizer's replies are in the order of their requests, each with its stage. If a request has changed since the
recording, a replay gives the reply that was recorded in the same position, and says how many requests have changed. So
a later version of SkillOpt with other requests can still repeat the run from the same replies.

A recorded edit may replace a section and leave out lines without naming them, which was allowed then. A replay names
these lines, so that the same edits are applied, and says how many edits are affected.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, FatalError, RefusedError, Schema, Usage
from skillopt.models.call import request_key
from skillopt.models.handoff import HandoffModel, Letter
from skillopt.record.files import write_atomic
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import whole_section
from skillopt.skill.tokens import count_tokens
from skillopt.training.edits.losses import unnamed_losses
from skillopt.training.requests.blocks import blocks_in

from .cells import Cell

RECORDINGS = Path(__file__).resolve().parent / "recordings"
KEY = 32
"""The number of the hash's characters that are stored."""
EPOCH_END = ("slow_update", "meta_skill")
"""Stages with more requests now than when recordings were made: notes also after the last epoch, guidance also if tasks
only improved. A replay continues without these replies, as a run continues if its endpoint refuses such a request."""
EARLIER = "recorded before edits had to name what they drop"
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The content of a file in `recordings/`."""

    head: dict[str, Any]
    """The first line: cell, version, method, prompts' fingerprint, models ({role: {name, endpoint, deterministic}})."""
    replies: dict[str, list[ChatReply]]
    stages: dict[str, list[ChatReply]]
    """The optimizer's replies by stage, in their order."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The stage and the key of each request to the optimizer in a replay."""
    unnamed: list[str] = field(default_factory=list)
    """For each affected edit of a replay, the lines that it leaves out without naming them."""

    @classmethod
    def read(cls, path: Path) -> Recording:
        head, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        replies: dict[str, list[ChatReply]] = {}
        stages: dict[str, list[ChatReply]] = {}
        for row in rows:
            usage = dict(zip(("prompt", "completion", "cached"), row.pop("tokens"), strict=True))
            own = {name: value for name, value in row.items() if name not in {"role", "key", "stage"}}
            reply = ChatReply(usage=Usage(**usage), **own)
            replies.setdefault(row["key"], []).append(reply)
            if "stage" in row:
                stages.setdefault(row["stage"], []).append(reply)
        return cls(head=head, replies=replies, stages=stages)

    def model(self, role: str, *, exact: bool = False) -> Replayed:
        """Return a model that gives a role's recorded replies. With `exact`, only to exactly the recorded requests."""
        known = self.head["models"].get(role)
        if known is None:
            raise UserError(f"the recording of {self.head['cell']} has no {role}")
        return Replayed(recording=self, role=role, exact=exact, **known)

    @property
    def changed(self) -> int:
        """The number of the optimizer's requests in a replay that differ from the recorded requests."""
        return sum(key not in self.replies for _, key in self.asked)


@dataclass
class Replayed:
    """A ChatModel that gives the recorded replies."""

    recording: Recording
    role: str
    name: str
    endpoint: str
    deterministic: bool
    exact: bool
    _given: Counter[str] = field(default_factory=Counter)

    async def chat(self, request: ChatRequest) -> ChatReply:
        key = request_key(self, request, "")[:KEY]
        stage = request.schema.name if request.schema else "text"
        place = sum(asked == stage for asked, _ in self.recording.asked)
        known = self.recording.replies.get(key)
        if not known and self.role == "optimizer" and not self.exact:
            known = self.recording.stages.get(stage, [])[place : place + 1]
        if not known and stage in EPOCH_END:
            raise RefusedError(f"the recording of {self.recording.head['cell']} has no reply for this {stage}")
        if not known:
            head = self.recording.head
            raise FatalError(
                f"the recording of {head['cell']} has no reply to this request of the {self.role} ({stage}): the "
                f"requests have changed since version {head['version']} (method {head['method']}) recorded it; check "
                "out that version, or run the cell again"
            )
        if self.role == "optimizer":
            self.recording.asked.append((stage, key))
        self._given[key] += 1
        reply = known[min(self._given[key], len(known)) - 1]
        return self._with_names(reply, request) if stage in {"reflect", "deep_reflect", "merge"} else reply

    def _with_names(self, reply: ChatReply, request: ChatRequest) -> ChatReply:
        """Return the reply, with every line that an edit leaves out named as dropped."""
        try:
            value = json.loads(reply.text)
            rows = [(row, Edit.model_validate(row)) for row in value["edits"]]
        except (ValueError, KeyError, TypeError):
            return reply
        shown = "\n\n".join(str(message["content"]) for message in request.messages)
        skill = Skill("\n".join(text for _, text in blocks_in(shown, "skill")))
        losing = [(row, lines) for row, edit in rows if (lines := unnamed_losses(whole_section(edit, skill)))]
        for row, lines in losing:
            row["dropped"] = [*row.get("dropped", ()), *({"text": line, "reason": EARLIER} for line in lines)]
            self.recording.unnamed.append("\n".join(lines))
        return replace(reply, text=json.dumps(value, ensure_ascii=False)) if losing else reply

    async def close(self) -> None:
        return


@dataclass
class Known(HandoffModel):
    """A handoff model that takes replies from a recording, and asks its reader only for the other replies."""

    recorded: Replayed = field(kw_only=True)

    async def chat(self, request: ChatRequest) -> ChatReply:
        try:
            return await self.recorded.chat(request)
        except FatalError:
            return await super().chat(request)


def recording_of(cell: Cell) -> Path:
    """Return the path of a cell's recording, which may not exist."""
    return RECORDINGS / f"{cell.name}.jsonl"


def write(path: Path, head: dict[str, Any], rows: Iterable[Row]) -> int:
    """Write a recording, and return its number of replies."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    write_atomic(path, "\n".join([json.dumps(head), *lines]) + "\n")
    return len(lines)


def put_in_order(path: Path, asked: Sequence[tuple[str, str]]) -> None:
    """Put the optimizer's replies into the order in which a replay asked for them, each with its stage."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    left = [row for row in rows if row["role"] == "optimizer"]
    found = []
    for stage, key in asked:
        own = next((row for row in left if row["key"] == key), None)
        if own is not None:
            left.remove(own)
            found.append({"role": "optimizer", "stage": stage, **own})
    write(path, json.loads(head), [*found, *(row for row in rows if row["role"] != "optimizer")])


def row(role: str, key: str, reply: ChatReply) -> Row:
    usage = reply.usage
    own: Row = {"role": role, "key": key[:KEY], "text": reply.text}
    own |= {"finish_reason": reply.finish_reason} if reply.finish_reason != "stop" else {}
    own |= {"tool_calls": list(reply.tool_calls)} if reply.tool_calls else {}
    return {**own, "tokens": [usage.prompt, usage.completion, usage.cached]}


def target_rows(journals: Iterable[Path]) -> Iterator[Row]:
    """Yield the target's replies from journals, each key once: the target is deterministic."""
    seen: set[str] = set()
    for key, _, reply in _journalled(journals, "target"):
        if key not in seen and "text" in reply:  # journals also have whole rollouts of agents
            seen.add(key)
            yield row("target", key, ChatReply(**{**reply, "usage": Usage(**reply["usage"])}))


def known_rows(recording: Path, journals: Iterable[Path]) -> Iterator[Row]:
    """Yield the optimizer's replies that a run took from another run's recording."""
    read = {reply["text"] for _, _, reply in _journalled(journals, "optimizer")}
    lines = recording.read_text(encoding="utf-8").splitlines()[1:] if recording.exists() else []
    rows = (json.loads(line) for line in lines)
    yield from (row for row in rows if row["role"] == "optimizer" and row["text"] in read)


def _journalled(journals: Iterable[Path], role: str) -> Iterator[tuple[str, str, Row]]:
    """Yield the key, stage and reply of every call of a role."""
    for path in journals:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            found = db.execute("SELECT key, stage, reply FROM replies WHERE role=? ORDER BY key", [role]).fetchall()
        yield from ((key, stage, json.loads(text)) for key, stage, text in found)


def letter_rows(letters: Sequence[Letter], model: ChatModel, journals: Iterable[Path]) -> Iterator[Row]:
    """Yield a reader's replies from the letters. If the reader changed a reply after the run had read it, the journal
    has a reply of that stage that no letter has; then the journal's reply counts."""
    replies = [letter.checked(letter.reply.read_bytes()) for letter in letters]
    read = [(stage, reply["text"]) for _, stage, reply in _journalled(journals, "optimizer")]
    for letter, reply in zip(letters, replies, strict=True):
        own = [text for stage, text in read if stage == letter.stage]
        lost = [text for text in own if text not in replies]
        text = lost[0] if len(lost) == 1 and reply not in own else reply
        yield from reader_rows(model, letter.messages, letter.schema, letter.max_tokens, text)


def reader_rows(
    model: ChatModel, messages: list[Row], schema: Row | None, max_tokens: int | None, text: str
) -> Iterator[Row]:
    request = ChatRequest(messages=tuple(messages), max_tokens=max_tokens, schema=Schema(**schema) if schema else None)
    prompt = sum(count_tokens(str(message.get("content") or "")) for message in messages)
    reply = ChatReply(text=text, usage=Usage(prompt=prompt, completion=count_tokens(text)))
    yield row("optimizer", request_key(model, request, ""), reply)
