"""Plays games in worker processes. Each process plays many games; games in different processes run at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from skillopt.keys import no_secrets
from skillopt.processes.workers import WorkerGoneError, WorkerProcess
from skillopt.tasks.base import ScorerError

STEP_SECONDS = 120.0
"""Seconds to wait for a game's answer. After this time, the game's process is ended."""
BUILD_SECONDS = 900.0
"""Seconds to wait until a game is made or the engine has started. After this time, the process is ended."""
GAMES_A_PROCESS = 200
"""The number of games after which an idle process is replaced, because the engines leak memory."""


Recipe = dict[str, str | int | bool]
"""The recipe of a game: ALFWorld's task and seed, or TextWorld's seed and sizes."""


class GameState(BaseModel):
    """A game's state as the player sees it, and whether the game is won or over. The function `known` in worker.py
    makes it."""

    observation: str
    commands: list[str]
    won: bool
    done: bool


class GameFacts(BaseModel):
    """The goal of a game, and a way to win it."""

    objective: str
    walkthrough: list[str]
    name: str = ""
    """The name of the game's folder in ALFWorld's layout."""


class GameError(ScorerError):
    """Raised if the game itself failed, not its player. Its item is set aside."""


class GameWorker:
    """One process that plays games. It handles one request at a time."""

    def __init__(self, engine: str) -> None:
        self._process = WorkerProcess(Path(__file__).with_name("worker.py"), no_secrets(), log=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="games")
        self._started = self._thread.submit(self._process.ask, {"engine": engine}, BUILD_SECONDS)
        self.open_games = 0
        self.games = 0

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def ask(self, *, within: float = 0, **request: Any) -> Any:
        """Send a request to the process and return the answer. `within` is the maximum number of seconds to wait; by
        default STEP_SECONDS."""
        try:
            if problem := (await asyncio.shield(asyncio.wrap_future(self._started))).get("error"):
                raise WorkerGoneError(str(problem))
        except WorkerGoneError as error:
            raise GameError(f"the games' engine cannot start: {error}") from None
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._thread, self._process.ask, request, within or STEP_SECONDS)
        except WorkerGoneError as error:
            raise GameError(f"the process of a game has ended: {error}") from None
        if "error" in answer:
            raise GameError(f"a game failed: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.stop()
        self._thread.shutdown(wait=False)


class Game:
    """One game that is being played."""

    def __init__(self, worker: GameWorker, number: int) -> None:
        self._worker = worker
        self._number = number

    async def start(self, path: Path) -> GameState:
        return GameState.model_validate(await self._worker.ask(do="start", game=self._number, path=str(path)))

    async def step(self, command: str) -> GameState:
        return GameState.model_validate(await self._worker.ask(do="step", game=self._number, command=command))

    async def __aenter__(self) -> Game:
        self._worker.open_games += 1
        self._worker.games += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self._worker.open_games -= 1
        with contextlib.suppress(GameError):  # the process may have ended
            await self._worker.ask(do="close", game=self._number)


class GamePool:
    """Up to `processes` worker processes, which are started when they are needed. A new game goes to the least busy
    process.

    If `processes` is 0, the maximum is one process per core that may be used. A worker of a cluster may use only one
    core (tasks/executor/worker.py).
    """

    def __init__(self, engine: str, processes: int = 0) -> None:
        self._engine = engine
        from_environment = int(os.environ.get("SKILLOPT_CORES", "0"))
        self._most = processes or from_environment or os.cpu_count() or 1
        self._workers: list[GameWorker] = []
        self._numbers = itertools.count(1)

    def game(self) -> Game:
        return Game(self._least_busy(), next(self._numbers))

    async def build(self, recipe: Recipe, path: Path) -> GameFacts:
        """Make a game's file."""
        worker = self._least_busy()
        worker.open_games += 1
        try:
            answer = await worker.ask(within=BUILD_SECONDS, do="build", recipe=recipe, path=str(path))
        finally:
            worker.open_games -= 1
        return GameFacts.model_validate(answer)

    def _least_busy(self) -> GameWorker:
        for worker in list(self._workers):
            spent = worker.games >= GAMES_A_PROCESS and not worker.open_games
            if spent or not worker.alive:
                worker.close()
                self._workers.remove(worker)
        idle = any(not worker.open_games for worker in self._workers)
        if not idle and len(self._workers) < self._most:
            self._workers.append(GameWorker(self._engine))
        return min(self._workers, key=lambda worker: worker.open_games)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []
