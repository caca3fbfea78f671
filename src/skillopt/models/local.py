"""`local:` models: llama.cpp on the user's CPU, in worker processes of one thread each."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from skillopt.config.roles import local_processes
from skillopt.errors import UserError
from skillopt.keys import no_secrets
from skillopt.models import weights
from skillopt.models.base import ChatReply, ChatRequest, FatalError, RefusedError, TransientError, Usage
from skillopt.models.openai_chat import tool_calls

WORKER = Path(__file__).with_name("local_worker.py")
MAX_TOKENS = 1024
"""Of a reply whose request names no limit; a small model that rambles would fill the context otherwise."""
MAX_CRASHES = 3
"""Of one worker in a row; then it is not worth another try."""

Job = tuple[dict[str, Any], "Future[dict[str, Any]]"]


class LocalModel:
    """A GGUF file as a ChatModel: `local:NAME` of the weights catalogue, or `local:/path/to/file.gguf`.

    Nothing is loaded or fetched before the first chat. The same request gives the same reply on one machine,
    whatever was asked before, in whichever order and of however many workers; local_worker.py says why. A
    request without a temperature is asked at 0. Above 0, one without a seed uses a fixed seed; with
    `deterministic=False` it draws a fresh one.

    workers: processes, one thread each; by default one a core, up to four. They share the weights' memory.
    context: tokens of prompt and reply together; a longer prompt is a RefusedError.
    prefix_cache: evaluate a system message once, not for each request. The replies may differ from those with
    it off, because the rounding does, but each setting always repeats its own.
    """

    def __init__(
        self,
        name: str,
        *,
        workers: int | None = None,
        context: int = 8192,
        deterministic: bool = True,
        prefix_cache: bool = True,
    ) -> None:
        self._weights = name.removeprefix("local:")
        if importlib.util.find_spec("xllamacpp") is None:
            raise UserError(f"{self.name}: llama.cpp is not installed; pip install 'skillopt[local]'")
        if not weights.is_file(self._weights):
            weights.entry(self._weights)
        elif weights.find(self._weights) is None:
            raise UserError(weights.missing(self._weights))
        self._deterministic = deterministic
        self._pool = _Pool(self, workers or local_processes(), context, prefix_cache)

    @property
    def name(self) -> str:
        return f"local:{self._weights}"

    @property
    def endpoint(self) -> str:
        """The weights' SHA-256. An own file is read once for it and remembered."""
        if weights.is_file(self._weights):
            return f"local:{weights.sha256_of(weights.path(self._weights))}"
        return f"local:{weights.entry(self._weights).sha256}"

    @property
    def deterministic(self) -> bool:
        return self._deterministic

    def resolve(self) -> Path:
        """The weights' file, fetched when it is missing."""
        return weights.resolve(self._weights)

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await asyncio.wrap_future(self._pool.submit(self._body(request)))
        choice, usage = reply["choices"][0], reply["usage"]
        return ChatReply(
            text=choice["message"].get("content") or "",
            finish_reason=choice["finish_reason"],
            tool_calls=tool_calls(choice["message"].get("tool_calls")),
            usage=Usage(
                prompt=usage["prompt_tokens"],
                completion=usage["completion_tokens"],
                cached=usage["prompt_tokens_details"]["cached_tokens"],
            ),
        )

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return self._pool.pids()

    async def close(self) -> None:
        """End the worker processes, also in the middle of a reply. The model cannot be used afterwards."""
        await asyncio.to_thread(self._pool.stop)

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        seed = request.seed
        if seed is None:
            seed = 0 if self._deterministic else random.getrandbits(31)
        body: dict[str, Any] = {
            "messages": list(request.messages),
            "temperature": request.temperature or 0.0,
            "max_tokens": request.max_tokens or MAX_TOKENS,
            "seed": seed % (1 << 31),
        }
        if request.tools:
            body["tools"] = list(request.tools)
        if request.schema is not None:
            schema = {"name": request.schema.name, "schema": request.schema.body, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


class _Pool:
    """A queue of requests and the threads that pass them on, one thread and one process for each worker."""

    def __init__(self, model: LocalModel, size: int, context: int, prefix_cache: bool) -> None:
        self._model = model
        self._size = size
        self._setup = {"context": context, "prefix_cache": prefix_cache}
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._workers: list[_Worker] = []
        self._unfinished = 0
        self._closed = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def submit(self, body: dict[str, Any]) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._closed:
                raise FatalError(f"{self._model.name}: asked after it was closed")
            self._unfinished += 1
            if self._unfinished > len(self._workers) < self._size:
                worker = _Worker(self._model.name)
                self._workers.append(worker)
                threading.Thread(target=self._serve, args=(worker,), daemon=True).start()
        self._jobs.put((body, future))
        return future

    def pids(self) -> list[int]:
        with self._lock:
            return [worker.pid for worker in self._workers if worker.pid is not None]

    def stop(self) -> None:
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
        for _ in workers:
            self._jobs.put(None)
        for worker in workers:
            worker.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def _serve(self, worker: _Worker) -> None:
        while (job := self._jobs.get()) is not None:
            body, future = job
            if future.set_running_or_notify_cancel():
                try:
                    reply = self._ask(worker, body)
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(reply)
            with self._lock:
                self._unfinished -= 1

    def _ask(self, worker: _Worker, body: dict[str, Any]) -> dict[str, Any]:
        if self._closed:
            raise FatalError(f"{self._model.name}: closed before it answered")
        try:
            if worker.pid is None:
                worker.start(self._settings())
            reply = worker.ask(body)
        except TransientError as error:
            worker.crashes += 1
            if self._closed or worker.crashes >= MAX_CRASHES:
                raise FatalError(f"{error} ({worker.crashes} times in a row)") from error
            raise
        except OSError as error:
            raise FatalError(f"{self._model.name}: a worker process could not be started: {error}") from error
        worker.crashes = 0
        return reply

    def _settings(self) -> dict[str, Any]:
        """What a worker needs to start. Missing weights are fetched here, by the first thread that comes."""
        with self._starting:
            try:
                file = self._model.resolve()
            except UserError as error:
                raise FatalError(str(error)) from error
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="skillopt-", ignore_cleanup_errors=True)
            Path(self._folder.name).mkdir(exist_ok=True)  # a cleaner of temporary folders may run during a long run
            return {**self._setup, "weights": str(file), "states": self._folder.name}


class _Worker:
    """One worker process as its thread sees it: blocking calls. `stop` may come from any thread."""

    def __init__(self, model: str) -> None:
        self.crashes = 0
        self._model = model
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None

    @property
    def pid(self) -> int | None:
        """None while no process runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, settings: dict[str, Any]) -> None:
        descriptor, log = tempfile.mkstemp(suffix=".log", dir=settings["states"])
        self._log = Path(log)
        try:
            with self._lock:
                if self._stopped:
                    raise FatalError(f"{self._model}: closed before it answered")
                # -P: the script's own folder, with names like `base`, must not come before the libraries.
                self._process = subprocess.Popen(  # noqa: S603 - our own script
                    [sys.executable, "-P", str(WORKER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=descriptor,
                    env={**no_secrets(), "OMP_NUM_THREADS": "1"},
                )
        finally:
            os.close(descriptor)
        self.ask(settings)

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        line = self._exchange(self._process, body)
        if not line.endswith(b"\n"):
            raise TransientError(self._obituary(self._process))
        reply: dict[str, Any] = json.loads(line)
        if reply.get("error") == "refused":
            raise RefusedError(f"{self._model}: {reply['message']}")
        if "error" in reply:
            raise FatalError(f"{self._model}: {reply['message']}{self._last_words()}")
        return reply

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], body: dict[str, Any]) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        # Text that is not valid Unicode is made so: llama.cpp takes nothing else.
        line = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        except (OSError, ValueError):  # the pipe broke, or `stop` closed it
            return b""

    def stop(self) -> None:
        """End the process for good: it ends when its input does, and after two seconds it is made to."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _obituary(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        hint = "; is there enough memory?" if code == -signal.SIGKILL else ""
        return f"{self._model}: a worker process ended {how}{hint}{self._last_words()}"

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() if self._log else []
        except OSError:
            lines = []
        return f" ({lines[-1].strip()})" if lines else ""
