"""The ChatModel whose replies somebody else writes: it leaves a letter and waits, for as long as it takes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from skillopt.errors import DiskError, Stopped, disk_trouble
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, FatalError, ModelSpec, Usage
from skillopt.models.handoff.box import BadReply, Box, Letter, letters_folder
from skillopt.skill.tokens import count_tokens

POLL = 0.2
"""Seconds between two looks for a reply."""
SETTLED = 5
"""Looks over which a file must stay as it is before it is judged: whoever writes it in place may not be done."""


@dataclass
class HandoffModel(ChatModel):
    """`handoff`, or `handoff:FOLDER`. Replies are a reader's, so that the same request may get another one."""

    box: Box | None
    """None if nothing will be asked, as in a check of the config."""
    name: str = "handoff"
    endpoint: str = "handoff"
    human_paced: bool = True
    waiting: dict[int, Path] = field(default_factory=dict)

    async def chat(self, request: ChatRequest) -> ChatReply:
        if self.box is None:
            raise FatalError("handoff: letters need a folder; name one as handoff:FOLDER")
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
        """The text of the first reply that fits."""
        seen: tuple[int, int] | None = None
        looks = 0
        while True:
            found = _state(letter.reply)
            looks = looks + 1 if found == seen else 0
            seen = found
            if found is not None:
                try:
                    letter.check_size(found[1])
                    text = letter.read_reply()
                    if letter.schema or looks >= SETTLED:
                        letter.problem.unlink(missing_ok=True)
                        return text
                except BadReply as bad:
                    if looks >= SETTLED:
                        box.send_back(letter, bad.problems)
                except OSError:  # taken away again by whoever put it there
                    looks = 0
            await asyncio.sleep(POLL)


def open_handoff(spec: ModelSpec) -> HandoffModel:
    return HandoffModel(Box(letters_folder(spec.name, spec.run), spec.run.root.resolve().name) if spec.run else None)


def _state(path: Path) -> tuple[int, int] | None:
    """When and how long a file was written; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
