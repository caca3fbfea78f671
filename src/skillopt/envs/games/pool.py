"""Games in worker processes: each process holds many, and no game waits for those of another process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skillopt.envs.base import ScorerError
from skillopt.keys import no_secrets
from skillopt.workers import WorkerGoneError, WorkerProcess

STEP_SECONDS = 120.0
"""Seconds after which a game without an answer has hung; its process is ended."""
BUILD_SECONDS = 900.0
"""The same for making a game."""
GAMES_A_PROCESS = 200
"""Engines leak memory: after this many games, an idle process is replaced by a new one."""


class GameError(ScorerError):
    """The game failed, not the player: its item is set aside."""


class Worker:
    """One process that holds games. Its requests wait for their turn in one thread."""

    def __init__(self, engine: str) -> None:
        self._process = WorkerProcess(Path(__file__).with_name("worker.py"), no_secrets())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="games")
        self._thread.submit(self._process.ask, {"engine": engine}, BUILD_SECONDS)
        self.open_games = 0
        self.games = 0

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def ask(self, *, within: float = 0, **request: Any) -> dict[str, Any]:
        """`within`: seconds, STEP_SECONDS where none are given."""
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._thread, self._process.ask, request, within or STEP_SECONDS)
        except WorkerGoneError as error:
            raise GameError(f"a game has no process any more: {error}") from None
        if "error" in answer:
            raise GameError(f"a game failed: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.stop()
        self._thread.shutdown(wait=False)


class Game:
    """One game that is being played."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number

    async def start(self, path: Path) -> dict[str, Any]:
        answer = await self._worker.ask(do="start", game=self._number, path=str(path))
        state: dict[str, Any] = answer["state"]
        return state

    async def step(self, command: str) -> dict[str, Any]:
        answer = await self._worker.ask(do="step", game=self._number, command=command)
        state: dict[str, Any] = answer["state"]
        return state

    async def __aenter__(self) -> Game:
        self._worker.open_games += 1
        self._worker.games += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self._worker.open_games -= 1
        with contextlib.suppress(GameError):  # a process that has ended holds no game
            await self._worker.ask(do="close", game=self._number)


class GamePool:
    """`processes` worker processes, started when they are needed. A new game goes to the least busy.

    0: one for each core that is ours. In a worker of a cluster that is one (executor/worker.py says so).
    """

    def __init__(self, engine: str, processes: int = 0) -> None:
        self._engine = engine
        own = int(os.environ.get("SKILLOPT_CORES", "0"))
        self._most = processes or own or os.cpu_count() or 1
        self._workers: list[Worker] = []
        self._numbers = itertools.count(1)

    def game(self) -> Game:
        return Game(self._least_busy(), next(self._numbers))

    async def build(self, recipe: dict[str, Any], path: Path) -> dict[str, Any]:
        """Make a game's file; gives its objective and a way to win."""
        worker = self._least_busy()
        worker.open_games += 1
        try:
            answer = await worker.ask(within=BUILD_SECONDS, do="build", recipe=recipe, path=str(path))
        finally:
            worker.open_games -= 1
        facts: dict[str, Any] = answer["facts"]
        return facts

    def _least_busy(self) -> Worker:
        for worker in list(self._workers):
            spent = worker.games >= GAMES_A_PROCESS and not worker.open_games
            if spent or not worker.alive:
                worker.close()
                self._workers.remove(worker)
        idle = any(not worker.open_games for worker in self._workers)
        if not idle and len(self._workers) < self._most:
            self._workers.append(Worker(self._engine))
        return min(self._workers, key=lambda worker: worker.open_games)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []
