"""One worker process of a `local:` model: llama.cpp on one thread, one request at a time.

local.py starts it as a separate script, without the rest of the package (child.py).

A skill is evaluated only once, and still each reply depends only on its request. With llama.cpp's own prompt cache, a
reply would depend on earlier requests: that cache cuts a prompt at its first difference from the previous request, and
rounding depends on the cuts. Here, every request starts from the saved state of its longest prefix (`prefixes`). Each
state was made from the state of the next shorter prefix; the state of the shortest prefix was made from an empty
context. So the cuts depend only on the messages, not on earlier requests or the worker. Restoring a state takes about
a millisecond.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from skillopt.processes import child

if TYPE_CHECKING:
    from skillopt.chat_protocol import CompletionBody, JsonObject, Message

PLACEHOLDER = "~"
"""The text of the user's message in a request that only evaluates the system message."""
STATE_BYTES = 512 << 20
"""The maximum number of bytes of all saved states of one model. If there are more, the least recently used states are
removed."""


class LocalSetup(TypedDict):
    """The first line that a local model's worker process reads."""

    weights: str
    context: int
    states: str
    prefix_cache: bool


class RequestError(Exception):
    """The request got no reply. `kind` (`refused` or `fatal`) says which error local.py must raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def prefixes(messages: list[Message]) -> list[list[Message]]:
    """The prefixes of a conversation whose states are saved, shortest first: the system message, then each turn."""
    system = [message for message in messages[:1] if message["role"] == "system"]
    starts: list[list[Message]] = [[*system, {"role": "user", "content": PLACEHOLDER}]] if system else []
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant" and i > len(system)]
    return starts + [messages[:i] for i in turns]


class Engine:
    """Runs the model in this process. All workers share one folder of saved states."""

    def __init__(self, *, weights: str, context: int, states: str, prefix_cache: bool) -> None:
        import xllamacpp

        self._states = Path(states)
        self._prefix_cache = prefix_cache
        self._key = secrets.token_hex(16)
        params = xllamacpp.CommonParams()
        params.model.path = weights
        params.n_ctx = context
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more threads slow a busy machine
        params.n_threads_http = 1
        params.api_keys = [self._key]  # llama.cpp opens a loopback port; no other program may use it
        params.slot_save_path = f"{self._states}{os.sep}"
        params.cache_ram_mib = params.n_ctx_checkpoints = 0  # only our own states are stored
        params.fit_params = params.warmup = params.ui = False
        params.verbosity = 1
        if platform.machine().lower() in {"x86_64", "amd64"}:
            params.no_extra_bufts = True  # workers share the weights as they are; a repacked copy is not faster
            # With a skill of 1,200 tokens, a rollout of the 0.5B took 3.0 s of CPU, and 4.2 s with flash attention.
            params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._server = xllamacpp.Server(params)
        self._address = str(self._server.listening_address).split("//")[1]

    def chat(self, request: CompletionBody) -> JsonObject:
        # Tools come before the messages in the prompt, so a prefix without tools is a different prompt.
        cached_prefixes = prefixes(request["messages"]) if self._prefix_cache and not request.get("tools") else []
        restored = len(cached_prefixes)
        while restored and not self._restore(cached_prefixes[restored - 1]):
            restored -= 1
        for index in range(restored, len(cached_prefixes)):
            self._complete({"messages": cached_prefixes[index], "max_tokens": 0}, continued=index > 0)
            self._save(cached_prefixes[index])
            self._restore(cached_prefixes[index])
        return self._complete(request, continued=bool(cached_prefixes))

    def _complete(self, body: CompletionBody, *, continued: bool) -> JsonObject:
        try:
            reply = self._server.handle_chat_completions({**body, "cache_prompt": continued, "id_slot": 0})
        except (ValueError, RuntimeError) as error:
            raise RequestError("fatal", str(error)) from error
        if fault := reply.get("error"):
            too_long = fault.get("type") == "exceed_context_size_error"
            raise RequestError("refused" if too_long else "fatal", str(fault.get("message", fault)))
        completion: JsonObject = reply
        return completion

    def _restore(self, messages: list[Message]) -> bool:
        file = self._states / self._name(messages)
        if not file.exists():
            return False
        with contextlib.suppress(OSError):
            os.utime(file)
        return self._slot("restore", file.name)

    def _save(self, messages: list[Message]) -> None:
        draft = self._states / f"{os.getpid()}.draft"
        if self._slot("save", draft.name):
            draft.replace(self._states / self._name(messages))
            self._evict()

    def _slot(self, action: str, name: str) -> bool:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", f"/slots/0?action={action}", json.dumps({"filename": name}), headers)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False  # costs time, not correctness: the prefix is evaluated again
        finally:
            connection.close()

    def _name(self, messages: list[Message]) -> str:
        text = json.dumps(messages, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest() + ".state"

    def _evict(self) -> None:
        files = []
        for file in self._states.glob("*.state"):
            with contextlib.suppress(FileNotFoundError):  # another worker may evict the same file
                stat = file.stat()
                files.append((stat.st_mtime_ns, stat.st_size, file))
        total = sum(size for _, size, _ in files)
        for _, size, file in sorted(files):
            if total <= STATE_BYTES:
                break
            file.unlink(missing_ok=True)
            total -= size


def begin(setup: LocalSetup) -> Callable[[CompletionBody], JsonObject]:
    _folders.append(setup["states"])
    return Engine(**setup).chat


_folders: list[str] = []


def at_end() -> None:
    """Remove the saved states, because the main process has ended."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


def explain(error: BaseException) -> JsonObject:
    return {"error": getattr(error, "kind", "fatal"), "message": str(error)}


if __name__ == "__main__":
    child.serve(begin, explain, at_end)
