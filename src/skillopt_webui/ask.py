"""Asking the worker: one process for each question, with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt_webui.settings import Settings

PATIENCE = 120
"""Seconds; a data set may be large, an endpoint slow."""


class Worker:
    """Two questions at a time: each loads a data set."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(2)

    async def ask(self, question: str, config: str) -> dict[str, Any]:
        async with self._places:
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
        return _answer(out, complaint)


def _answer(out: bytes, complaint: bytes) -> dict[str, Any]:
    """The last line: a data set's own code may print."""
    lines = out.decode("utf-8", "replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = complaint.decode("utf-8", "replace").strip().splitlines()
        raise UserError(f"the question failed: {redact(last[-1]) if last else 'no answer'}") from None
    if "error" in answer:
        raise UserError(answer["error"])
    found: dict[str, Any] = answer
    return found
