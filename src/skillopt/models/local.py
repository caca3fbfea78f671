"""`local:` models: llama.cpp on the user's CPU, in worker processes of one thread each."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import threading
from pathlib import Path

from skillopt.errors import UserError
from skillopt.keys import no_secrets
from skillopt.models import weights
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    CompletionBody,
    FatalError,
    JsonObject,
    ModelSpec,
    RefusedError,
    TransientError,
)
from skillopt.models.openai_chat import read_completion
from skillopt.processes.workers import WorkerGoneError, WorkerPool, WorkerProcess
from skillopt.provider_table import local_processes, split_name

WORKER = Path(__file__).with_name("local_worker.py")
MAX_TOKENS = 1024
"""The maximum number of tokens of a reply if the request sets no maximum. Without this, a small model might write until
the context is full."""
MAX_CRASHES = 3
"""The number of crashes in a row after which the run ends."""


class LocalModel(ChatModel):
    """A model in a GGUF file: `local:NAME` of the weights catalogue, or `local:/path/to/file.gguf`.

    Nothing is loaded or fetched before the first chat. On one machine, the same request always gets the same reply, no
    matter which requests came before and how many workers there are; local_worker.py says why. The default temperature
    is 0, and the default seed is fixed.

    workers: the number of processes, one thread each; by default one per core, up to four. The weights are in
    memory only once.
    context: the maximum number of tokens of prompt and reply together; a longer prompt raises RefusedError.
    prefix_cache: evaluate a system message once, not for each request. Because of rounding, replies with the cache may
    differ from replies without it; but with either setting, the same request always gets the same reply.
    """

    deterministic = True

    def __init__(
        self, name: str, *, workers: int | None = None, context: int = 8192, prefix_cache: bool = True
    ) -> None:
        self._weights = split_name(name)[1] or name
        self.name = f"local:{self._weights}"
        if importlib.util.find_spec("xllamacpp") is None:
            raise UserError(f"{self.name}: llama.cpp is not installed; pip install 'skillopt[local]'")
        if weights.is_file(self._weights):
            weights.weights_path(self._weights)
        else:
            weights.entry(self._weights)
        self._setup = {"context": context, "prefix_cache": prefix_cache}
        self._pool = WorkerPool(self._started, workers or local_processes())
        self._starting = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._crashes = 0

    @property
    def endpoint(self) -> str:  # type: ignore[override]  # known only when the file has been read
        """The identity of the weights: their SHA-256."""
        if weights.is_file(self._weights):
            return f"local:{weights.sha256_of(weights.weights_path(self._weights))}"
        return f"local:{weights.entry(self._weights).sha256}"

    async def chat(self, request: ChatRequest) -> ChatReply:
        return read_completion(await self._asked(self._body(request)))

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run now."""
        return self._pool.pids()

    async def close(self) -> None:
        """End the worker processes, even in the middle of a reply. The model cannot be used afterwards."""
        await asyncio.to_thread(self._pool.close)
        if self._folder is not None:
            self._folder.cleanup()

    async def _asked(self, body: CompletionBody) -> JsonObject:
        try:
            reply = await self._pool.ask(body)
        except WorkerGoneError as error:
            self._crashes += 1
            if self._pool.closed:
                raise FatalError(f"{self.name}: the model was closed before it answered") from error
            if self._crashes >= MAX_CRASHES:
                raise FatalError(f"{self.name}: {error} ({self._crashes} times in a row)") from error
            raise TransientError(f"{self.name}: {error}") from error
        except OSError as error:
            raise FatalError(f"{self.name}: a worker process could not be started: {error}") from error
        self._crashes = 0
        if "error" in reply:
            kind = RefusedError if reply["error"] == "refused" else FatalError
            raise kind(f"{self.name}: {reply['message']}")
        return reply

    def _started(self) -> WorkerProcess:
        """Start a worker and load the model. If the weights are missing, the first thread that needs them fetches
        them."""
        with self._starting:
            try:
                file = weights.resolve(self._weights)
            except UserError as error:
                raise FatalError(str(error)) from error
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="skillopt-", ignore_cleanup_errors=True)
            states = Path(self._folder.name)
            states.mkdir(exist_ok=True)  # the system may clean up temporary folders during a long run
        worker = WorkerProcess(WORKER, {**no_secrets(), "OMP_NUM_THREADS": "1"}, log=True)
        reply = worker.ask({**self._setup, "weights": str(file), "states": str(states)})
        if "error" in reply:
            worker.stop()
            raise FatalError(f"{self.name}: {reply['message']}{worker.last_words()}")
        return worker

    def _body(self, request: ChatRequest) -> CompletionBody:
        body: CompletionBody = {
            "messages": list(request.messages),
            "temperature": request.temperature or 0.0,
            "max_tokens": request.max_tokens or MAX_TOKENS,
            "seed": (request.seed or 0) % (1 << 31),
        }
        if request.tools:
            body["tools"] = list(request.tools)
        if request.schema is not None:
            body["response_format"] = request.schema.response_format()
        return body


def open_local(spec: ModelSpec) -> LocalModel:
    return LocalModel(spec.name)
