"""Does tasks in processes of this machine, one for each core, for envs and scorers that need the CPU.

A worker and the main process exchange frames: each is a token, a length and pickled bytes. Text that the worker's code
prints is sent to standard error, so it cannot get between the frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable

from skillopt.errors import UserError
from skillopt.provider_table import cores
from skillopt.tasks.base import Env
from skillopt.tasks.executor.pool import PooledExecutor, RemoteWorker, WorkerLostError
from skillopt.tasks.executor.worker import EnvWorker


class ProcessExecutor(PooledExecutor):
    """An executor with at most one worker process per core."""

    def __init__(self, workers: int, make: Callable[[], Env]) -> None:
        try:
            sent = pickle.dumps((sys.path, pickle.dumps(make)))
        except Exception as error:  # any error of an env's classes
            raise UserError(
                f"hardware.executor: this env cannot be sent to processes ({error}); give its functions in the config "
                "as `scorer.py:fn`, or define its functions and classes at the top level of a module"
            ) from None
        super().__init__(max(1, min(cores(), workers)), "this machine", sent)

    async def start(self) -> RemoteWorker:
        command = (sys.executable, "-P", "-m", "skillopt.tasks.executor.processes")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(  # an agent in the worker needs the same keys
            *command, stdin=pipe, stdout=pipe, env=dict(os.environ)
        )
        return ProcessWorker(process)


class ProcessWorker(RemoteWorker):
    """A worker that is a process. Answers come in any order; each has the token of the task that it belongs to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._reading = asyncio.create_task(self._read())

    async def tell(self, token: int, message: bytes) -> bytes:
        if self._reading.done() or self._process.stdin is None:
            raise WorkerLostError(self._gone())
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(ConnectionError):  # _read reports it
            self._process.stdin.write(_frame(token, message))
            await self._process.stdin.drain()
        reply: bytes = await future
        return reply

    async def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                token, message = await _next(self._process.stdout)
                future = self._waiting.pop(token, None)
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


def _frame(token: int, message: bytes) -> bytes:
    return token.to_bytes(8, "big") + len(message).to_bytes(8, "big") + message


async def _next(stream: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await stream.readexactly(16)
    return int.from_bytes(head[:8], "big"), await stream.readexactly(int.from_bytes(head[8:], "big"))


# Inside a worker


async def serve() -> None:
    """Answer frames until the input ends, which means that the main process has ended."""
    loop = asyncio.get_running_loop()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    stream = asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin.buffer)

    worker = EnvWorker()
    running: set[asyncio.Task[None]] = set()

    async def handle(token: int, message: bytes) -> None:
        replies.write(_frame(token, await worker.tell(token, message)))
        replies.flush()

    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            task = asyncio.create_task(handle(*await _next(stream)))
            running.add(task)
            task.add_done_callback(running.discard)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and ends this process afterwards
    asyncio.run(serve())
    os._exit(0)
