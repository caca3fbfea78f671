"""Asking the worker about a config: one process for each question, with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from pydantic import BaseModel, ValidationError

from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt_webui.settings import PageSettings
from skillopt_webui.worker_answers import ANSWERS, Failed

PATIENCE = 120
"""Seconds; a data set may be large, an endpoint slow."""


class Questions:
    """Two questions at a time: each loads a data set."""

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(2)

    async def ask(self, question: str, config: str) -> BaseModel:
        async with self._slots:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "skillopt_webui.worker", question),
                cwd=self._settings.workspace,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=16 * 2**20,
                env=os.environ,
            )
            try:
                async with asyncio.timeout(PATIENCE):
                    out, complaint = await child.communicate(config.encode())
            except TimeoutError:
                raise UserError(f"no answer within {PATIENCE} s; try `skillopt {question}` in a terminal") from None
            finally:
                if child.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        child.kill()
                    await child.wait()
        return _answer(ANSWERS[question], out, complaint)


def _answer(model: type[BaseModel], out: bytes, complaint: bytes) -> BaseModel:
    """The last line: a data set's code may print."""
    line = (out.strip().splitlines() or [b""])[-1]
    try:
        return model.model_validate_json(line)
    except ValidationError:
        pass
    try:
        failed = Failed.model_validate_json(line)
    except ValidationError:
        last = complaint.decode("utf-8", "replace").strip().splitlines()
        raise UserError(f"the question failed: {redact(last[-1]) if last else 'no answer'}") from None
    raise UserError(failed.error)
