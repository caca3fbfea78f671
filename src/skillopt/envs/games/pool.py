"""Games in worker processes: each holds many, and each step is answered as soon as it is done; there is no barrier."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from skillopt.envs.base import ScorerError
from skillopt.keys import no_secrets

STEP_SECONDS = 120.0
"""Seconds after which a game without an answer has hung; its process is ended."""
BUILD_SECONDS = 900.0
"""Making a game takes seconds, but many may wait for their turn."""
GAMES_A_PROCESS = 200
"""Engines leak memory: after this many games, an idle process is replaced by a new one."""


class GameError(ScorerError):
    """The game failed, not the player: its item is set aside."""


class Worker:
    """One process, asked from any thread or loop."""

    def __init__(self, engine: str) -> None:
        script = Path(__file__).with_name("worker.py")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(script), engine],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            env=no_secrets(),
        )
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.open_games = 0
        self.games = 0
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def ask(self, *, within: float = 0, **request: Any) -> dict[str, Any]:
        """`within`: seconds, STEP_SECONDS where none are given."""
        number, within = next(self._numbers), within or STEP_SECONDS
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._waiting[number] = future
        try:
            assert self._process.stdin
            with self._lock:
                self._process.stdin.write(json.dumps({"id": number, **request}) + "\n")
                self._process.stdin.flush()
            async with asyncio.timeout(within):
                answer = await asyncio.wrap_future(future)
        except TimeoutError:
            self.close()
            raise GameError(f"a game did not answer for {within:g} s") from None
        except OSError:
            raise GameError("a game's process has ended") from None
        if "error" in answer:
            raise GameError(f"a game failed: {answer['error']}")
        return answer

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["id"], None)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(answer)
        with self._lock:
            left = list(self._waiting.values())
            self._waiting.clear()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_result({"error": "its process has ended"})

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


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
