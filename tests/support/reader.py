"""A program that answers letters as the simulated optimizer would, in whatever order and manner a test wants."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from skillopt.errors import UserError
from skillopt.models.base import ChatRequest, Schema
from skillopt.models.handoff import Box, Letter
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.sync import run_sync

WRONG = (b"", b"Sure, here it is.", b'{"edits": [', b'{"edits": 3}', b"[1, 2]", b"\xff\xfe\x00")


def reply_to(letter: Letter, options: SimOptions) -> bytes:
    """What the simulated optimizer answers."""
    assert letter.schema is not None
    request = ChatRequest(messages=tuple(letter.messages), schema=Schema(**letter.schema))
    return run_sync(SimulatedModel("sim:world", options).chat(request)).text.encode()


class Reader:
    """Answers the letters of every run below a folder in a thread of its own, the newest first or at random."""

    def __init__(self, out: Path, options: SimOptions, *, seed: int = 0, wrong_first: bool = False) -> None:
        self._out = out
        self._options = options
        self._draw = random.Random(seed)
        self._wrong_first = wrong_first
        self._end = threading.Event()
        self.answered: list[str] = []
        self.refused: set[str] = set()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._end.wait(0.05):
            boxes = [Box(folder, "") for folder in self._out.glob("**/letters")]
            waiting = [(box, letter) for box in boxes for letter in box.open_letters()]
            self._draw.shuffle(waiting)
            for box, letter in waiting:
                self.answer(box, letter)

    def answer(self, box: Box, letter: Letter) -> None:
        if self._wrong_first and letter.hash not in self.refused:
            letter.reply.write_bytes(self._draw.choice(WRONG))  # in place, as an agent's file tool writes
            self.refused.add(letter.hash)
            return
        try:
            box.hand_in(letter.number, reply_to(letter, self._options))
        except UserError:  # a test's own reply came first
            return
        self.answered.append(letter.hash)
