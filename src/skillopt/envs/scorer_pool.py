"""Scorers in worker processes: one that hangs, crashes or eats memory costs its item and not the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt.envs.base import ScorerError
from skillopt.errors import UserError
from skillopt.keys import no_secrets
from skillopt.workers import WorkerGoneError, WorkerPool, WorkerProcess

WORKER = Path(__file__).with_name("scorer_worker.py")
TRIES = 2
"""A scorer that hangs or crashes gets a second try in a fresh process: the machine may have been to blame."""


class ScorerPool:
    """Worker processes for one scorer, `file.py:fn`, `module:fn` or `built-in:name`."""

    def __init__(
        self, reference: str, *, timeout: float, memory_mb: int, workers: int, pass_env: Sequence[str] = ()
    ) -> None:
        self._name = f"{Path(reference.rpartition(':')[0]).name}:{reference.rpartition(':')[2]}"
        self._timeout = timeout
        self._setup = {"reference": reference, "memory_mb": memory_mb, "path": [p for p in sys.path if p]}
        self._env = no_secrets(pass_env)
        self._pool = WorkerPool(self._started, workers)

    def check(self, where: str) -> None:
        """Load the scorer once, so that a missing file or function is reported before anything is paid for."""
        try:
            self._pool.warm_up()
        except ScorerError as error:
            raise UserError(f"{where}: {error}; a scorer is a function of item and output") from None

    async def score(self, item: Mapping[str, Any], output: str, workspace: Path | None = None) -> dict[str, Any]:
        """What the function returned, as fields; raises ScorerError where it returned nothing."""
        request = {"item": dict(item), "output": output} | ({"workspace": str(workspace)} if workspace else {})
        for attempt in range(TRIES):
            try:
                reply = await self._pool.ask(request, self._timeout)
            except WorkerGoneError as error:
                if attempt + 1 == TRIES:
                    raise ScorerError(f"scorer {self._name}: {error}") from None
                continue
            if "error" in reply:
                raise ScorerError(f"scorer {self._name}: {reply['error']}")
            return reply
        raise AssertionError("the last try raises")

    def close(self) -> None:
        self._pool.close()

    def _started(self) -> WorkerProcess:
        worker = WorkerProcess(WORKER, self._env)
        try:
            said = worker.ask(self._setup, max(self._timeout, 60.0)).get("error", "")
        except WorkerGoneError as error:
            said = str(error)
        if said:
            worker.stop()
            raise ScorerError(f"scorer {self._name}: cannot be loaded: {said}")
        return worker
