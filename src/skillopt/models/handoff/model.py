"""A model whose replies are written by a person or an agent. It writes each request as a letter and waits for the reply
as long as necessary."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from skillopt.errors import DiskError, Stopped, disk_trouble
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, FatalError, ModelSpec, Usage
from skillopt.models.handoff.box import BadReply, Box, Letter, letters_folder
from skillopt.skill.tokens import count_tokens

POLL = 0.2
"""Seconds between two polls for a reply."""
SETTLED = 5
"""The number of polls without a change after which a reply's file counts as complete. Before that, somebody may still
be writing it."""


@dataclass
class HandoffModel(ChatModel):
    """The model `handoff` or `handoff:FOLDER`. It is noisy: the same request may get different replies."""

    box: Box | None
    """The letters of the run; None if no request will be sent, for example if only the config is checked."""
    name: str = "handoff"
    endpoint: str = "handoff"
    human_paced: bool = True
    waiting: dict[int, Path] = field(default_factory=dict)

    async def chat(self, request: ChatRequest) -> ChatReply:
        if self.box is None:
            raise FatalError("handoff: the letters need a folder; write the model's name as handoff:FOLDER")
        stage = request.schema.name if request.schema else "text"
        try:
            letter = self.box.post(request, stage)
        except DiskError as error:
            raise Stopped(disk_trouble(error)) from error
        self.waiting[letter.number] = letter.folder
        try:
            text = await self._reply(self.box, letter)
        finally:
            del self.waiting[letter.number]
        prompt = sum(count_tokens(str(message.get("content") or "")) for message in request.messages)
        return ChatReply(text=text, usage=Usage(prompt=prompt, completion=count_tokens(text)))

    async def _reply(self, box: Box, letter: Letter) -> str:
        """Wait for the first reply that fits; return its text."""
        seen: tuple[int, int] | None = None
        looks = 0
        while True:
            state = _state(letter.reply)
            looks = looks + 1 if state == seen else 0
            seen = state
            if state is not None:
                try:
                    letter.check_size(state[1])
                    text = letter.read_reply()
                    if letter.schema or looks >= SETTLED:
                        letter.problem.unlink(missing_ok=True)
                        return text
                except BadReply as bad:
                    if looks >= SETTLED:
                        box.send_back(letter, bad.problems)
                except OSError:  # the writer of the file has removed it
                    looks = 0
            await asyncio.sleep(POLL)


def open_handoff(spec: ModelSpec) -> HandoffModel:
    return HandoffModel(Box(letters_folder(spec.name, spec.run), spec.run.root.resolve().name) if spec.run else None)


def _state(path: Path) -> tuple[int, int] | None:
    """The modification time and the size of a file; None if it does not exist."""
    try:
        state = path.lstat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size
