"""Scorers in worker processes: one that hangs, crashes or eats memory costs its item and not the run."""

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
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skillopt.cli_agents.process import end_group
from skillopt.envs.base import ScorerError
from skillopt.errors import UserError
from skillopt.keys import no_secrets

WORKER = Path(__file__).with_name("scorer_worker.py")
TRIES = 2
"""A scorer that hangs or crashes gets a second try in a fresh process: the machine may have been to blame."""
_LONGEST_REPLY = 1 << 20


class ScorerPool:
    """Worker processes for one scorer, `file.py:fn`, `module:fn` or `built-in:name`."""

    def __init__(
        self, reference: str, *, timeout: float, memory_mb: int, workers: int, pass_env: Sequence[str] = ()
    ) -> None:
        self._name = f"{Path(reference.rpartition(':')[0]).name}:{reference.rpartition(':')[2]}"
        self._timeout = timeout
        self._setup = {"reference": reference, "memory_mb": memory_mb, "path": [p for p in sys.path if p]}
        self._env = no_secrets(pass_env)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="scorer")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()

    def check(self, where: str) -> None:
        """Load the scorer once, so that a missing file or function is reported before anything is paid for."""
        try:
            self._idle.put(self._started())
        except ScorerError as error:
            raise UserError(f"{where}: {error}; a scorer is a function of item and output") from None

    async def score(self, item: Mapping[str, Any], output: str, workspace: Path | None = None) -> dict[str, Any]:
        """What the function returned, as fields; raises ScorerError where it returned nothing."""
        request = {"item": dict(item), "output": output} | ({"workspace": str(workspace)} if workspace else {})
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._score, request)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().stop()

    def _score(self, request: dict[str, Any]) -> dict[str, Any]:
        for attempt in range(TRIES):
            worker = self._take()
            try:
                reply = worker.ask(request, self._timeout)
            except _GoneError as error:
                worker.stop()
                if attempt + 1 == TRIES:
                    raise ScorerError(f"scorer {self._name}: {error}") from None
                continue
            self._idle.put(worker)
            if "error" in reply:
                raise ScorerError(f"scorer {self._name}: {reply['error']}")
            return reply
        raise AssertionError("the last try raises")

    def _take(self) -> _Worker:
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        return self._started()

    def _started(self) -> _Worker:
        worker = _Worker(self._env)
        try:
            reply = worker.ask(self._setup, max(self._timeout, 60.0))
        except _GoneError as error:
            worker.stop()
            raise ScorerError(f"scorer {self._name}: cannot be loaded: {error}") from None
        if "error" in reply:
            worker.stop()
            raise ScorerError(f"scorer {self._name}: cannot be loaded: {reply['error']}")
        return worker


class _GoneError(Exception):
    """The worker gave no reply; the message says how it ended."""


class _Worker:
    """One process, spoken to by one thread at a time."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # -P: this script's own folder, with names like `base`, must not come before the user's modules.
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            start_new_session=True,
        )

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps(request).encode() + b"\n"
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise _GoneError(self._obituary()) from None
        reply = self._read(self._process.stdout.fileno(), time.monotonic() + timeout, timeout)
        found: dict[str, Any] = json.loads(reply)
        return found

    def _read(self, stream: int, deadline: float, timeout: float) -> bytes:
        found = bytearray()
        poll = select.poll()  # select() knows no file beyond the thousandth
        poll.register(stream, select.POLLIN)
        while not found.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise _GoneError(f"no score within {timeout:g} s; it was ended")
            chunk = os.read(stream, 1 << 16)
            if not chunk:
                raise _GoneError(self._obituary())
            found += chunk
            if len(found) > _LONGEST_REPLY:
                raise _GoneError("its feedback is longer than a megabyte")
        return bytes(found)

    def _obituary(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(5)
            if code < 0:
                name = signal.Signals(-code).name
                return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
            return f"the process ended with exit code {code}"
        return "the process closed its output"

    def stop(self) -> None:
        end_group(self._process)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
