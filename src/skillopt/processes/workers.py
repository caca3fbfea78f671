"""Starts worker processes and sends them one request at a time. child.py is the code inside such a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skillopt.chat_protocol import JsonObject
from skillopt.processes.process import end_group

LONGEST_ANSWER = 8 << 20
_LOG_END = 1 << 14
"""The number of bytes that are read at the end of a log to find the log's last line."""


class WorkerGoneError(Exception):
    """A worker gave no answer and was stopped; the message says why."""


class WorkerProcess:
    """One worker process. Only one thread at a time may call `ask`; any thread may call `stop`."""

    def __init__(self, script: Path, env: Mapping[str, str], *, log: bool = False) -> None:
        """If `log` is true, error messages contain the last line of the process's standard error."""
        self._log = tempfile.TemporaryFile() if log else None  # noqa: SIM115 - used as long as the process
        self._asking = threading.Lock()
        # -P: modules in the script's own folder, such as `base`, must not replace those of libraries.
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log or subprocess.DEVNULL,
            env=dict(env),
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: object, timeout: float | None = None) -> JsonObject:
        """Send a request and return the answer. Text that is not valid Unicode is replaced."""
        line = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with self._asking:
            try:
                answer: JsonObject = json.loads(self._exchange(line, timeout))
                return answer
            except (WorkerGoneError, OSError, ValueError) as error:
                how = str(error) if isinstance(error, WorkerGoneError) else self._end()
                end_group(self._process)
                raise WorkerGoneError(f"{how}{self.last_words()}") from None

    def _exchange(self, line: bytes, timeout: float | None) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        deadline = None if timeout is None else time.monotonic() + timeout
        answer, poll = bytearray(), select.poll()  # select() fails for file numbers of 1024 and more
        poll.register(self._process.stdout, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not poll.poll(None if deadline is None else max(0, deadline - time.monotonic()) * 1000):
                raise WorkerGoneError(f"no answer within {timeout:g} s; the process was stopped")
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise WorkerGoneError(self._end())
            answer += chunk
            if len(answer) > LONGEST_ANSWER:
                raise WorkerGoneError(f"the answer is longer than {LONGEST_ANSWER >> 20} MB")
        return bytes(answer)

    def _end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(5)
            if code < 0:
                name = signal.Signals(-code).name
                return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
            return f"the process ended with exit code {code}"
        return "the process closed its output"

    def last_words(self) -> str:
        """The last line of the process's log, in parentheses; empty if there is none."""
        if self._log is None:
            return ""
        end = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _LOG_END, max(0, end - _LOG_END)).decode(errors="replace")
        return next((f" ({line.strip()})" for line in reversed(text.split("\n")) if line.strip()), "")

    def stop(self) -> None:
        """End the process, even in the middle of an answer."""
        end_group(self._process)
        self._process.wait()
        with self._asking:
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


class WorkerPool:
    """At most `size` workers, which are started when they are needed. A new worker replaces one that has ended."""

    def __init__(self, start: Callable[[], WorkerProcess], size: int) -> None:
        self._start = start
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="worker")
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        self._workers: set[WorkerProcess] = set()
        self._lock = threading.Lock()
        self.closed = False

    async def ask(self, request: object, timeout: float | None = None) -> JsonObject:
        if self.closed:
            raise WorkerGoneError("the pool of workers is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.ask_now, request, timeout)

    def ask_now(self, request: object, timeout: float | None) -> JsonObject:
        """Ask a worker and wait for the answer."""
        worker = self.take()
        try:
            answer = worker.ask(request, timeout)
        except WorkerGoneError:
            self._workers.discard(worker)
            worker.stop()
            raise
        self._idle.put(worker)
        return answer

    def take(self) -> WorkerProcess:
        """An idle worker, or a new one."""
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        worker = None if self.closed else self._start()
        with self._lock:
            if worker and not self.closed:
                self._workers.add(worker)
                return worker
        if worker:
            worker.stop()
        raise WorkerGoneError("the pool of workers is closed")

    def pids(self) -> list[int]:
        with self._lock:
            return [worker.pid for worker in self._workers if worker.alive]

    def close(self) -> None:
        with self._lock:
            self.closed = True
            workers, self._workers = self._workers, set()
        self._threads.shutdown(wait=False)
        for worker in workers:
            worker.stop()
