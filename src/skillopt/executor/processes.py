"""Tasks in processes of this machine, one for each core: for envs and scorers that need the CPU, without a cluster.

A frame is a length and pickled bytes. The worker's own output goes to standard error, so that it cannot get between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

from skillopt.config.roles import cores
from skillopt.envs.base import Env, Item
from skillopt.errors import UserError
from skillopt.executor.base import WorkerLostError
from skillopt.executor.pool import READY_WITHIN, Line, Pool
from skillopt.executor.worker import EnvWorker
from skillopt.skill import Skill


class ProcessExecutor(Pool):
    """At most one worker a core."""

    def __init__(self, make: bytes, workers: int) -> None:
        self._make = make
        super().__init__(workers, "this machine")

    @classmethod
    async def open(cls, workers: int, make: Callable[[], Env]) -> ProcessExecutor:
        try:
            sent = pickle.dumps((sys.path, make))
        except Exception as error:  # whatever an env's own classes raise
            raise UserError(
                f"hardware.executor: this env cannot be sent to processes ({error}); name its parts in the config "
                "(`scorer.py:fn`), or define them at the top of a module"
            ) from None
        executor = cls(sent, max(1, min(cores(), workers)))
        await executor.first()
        return executor

    async def start(self) -> Line:
        command = (sys.executable, "-m", "skillopt.executor.processes")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(  # an agent finds its keys there as it would here
            *command, stdin=pipe, stdout=pipe, env=dict(os.environ)
        )
        line = ProcessLine(process)
        try:
            async with asyncio.timeout(READY_WITHIN):
                trouble = await line.ask(self._make)
        except (WorkerLostError, TimeoutError) as error:
            await line.end()
            raise UserError(f"a worker process cannot start: {error}") from None
        except asyncio.CancelledError:
            await line.end()
            raise
        if trouble:
            await line.end()
            raise UserError(pickle.loads(trouble))  # noqa: S301 - our own bytes
        return line


class ProcessLine(Line):
    """One process. Its answers come in any order and name what they answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self._process = process
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._asked = 0
        self._reading = asyncio.create_task(self._read())

    async def begin(self, token: str, item: Item, skill: Skill) -> bytes:
        return await self.ask(pickle.dumps(("begin", token, item, skill)))

    async def answer(self, token: str, answer: bytes) -> bytes:
        return await self.ask(pickle.dumps(("answer", token, answer)))

    async def ask(self, message: bytes) -> bytes:
        if self._reading.done() or self._process.stdin is None:
            raise WorkerLostError(self._gone())
        self._asked += 1
        future = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(ConnectionError):  # the reader notices, too
            self._process.stdin.write(_frame(self._asked, message))
            await self._process.stdin.drain()
        reply: bytes = await future
        return reply

    async def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, message = await _next(self._process.stdout)
                future = self._waiting.pop(number, None)
                if future and not future.done():
                    future.set_result(message)
        await self._process.wait()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerLostError(self._gone()))

    def _gone(self) -> str:
        return f"the process ended with exit code {self._process.returncode}"

    async def end(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._reading


def _frame(number: int, message: bytes) -> bytes:
    return number.to_bytes(8, "big") + len(message).to_bytes(8, "big") + message


async def _next(stream: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await stream.readexactly(16)
    return int.from_bytes(head[:8], "big"), await stream.readexactly(int.from_bytes(head[8:], "big"))


# Inside a worker


async def serve() -> None:
    """Answer frames until the input ends; then nobody needs us."""
    loop = asyncio.get_running_loop()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    stream = asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin.buffer)

    def say(number: int, message: bytes) -> None:
        replies.write(_frame(number, message))
        replies.flush()

    number, message = await _next(stream)
    worker, trouble = _opened(message)
    say(number, trouble)
    if worker is None:
        return
    running: set[asyncio.Task[None]] = set()

    async def handle(number: int, call: tuple[Any, ...]) -> None:
        name, *arguments = call
        say(number, await (worker.begin if name == "begin" else worker.answer)(*arguments))

    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            number, message = await _next(stream)
            task = asyncio.create_task(handle(number, pickle.loads(message)))  # noqa: S301 - our own bytes
            running.add(task)
            task.add_done_callback(running.discard)


def _opened(message: bytes) -> tuple[EnvWorker | None, bytes]:
    """The worker with its env, or why there is none."""
    try:
        path, make = pickle.loads(message)  # noqa: S301 - our own bytes
        sys.path[:] = [*(place for place in path if place not in sys.path), *sys.path]
        return EnvWorker(make), b""
    except Exception as error:  # whatever the env's own code raises
        return None, pickle.dumps(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks; it ends us when it is done
    asyncio.run(serve())
    os._exit(0)
