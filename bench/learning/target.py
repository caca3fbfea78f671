"""The target model for methods that are not ours: python target.py WEIGHTS MAX_TOKENS, one JSON request a line.

llama.cpp with the settings of `local:` models. A prompt is evaluated in two parts, the skill and the question, whatever
was asked before. So a reply depends on its request alone, and `skillopt eval` gets the same reply.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from typing import Any

PLACEHOLDER = "~"
"""Takes the question's place while the skill is evaluated; no question begins with it."""


class Target:
    """One GGUF file, one thread, one request at a time."""

    def __init__(self, weights: str, max_tokens: int, temperature: float = 0.0) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = weights
        params.n_ctx = 8192
        params.n_parallel = params.n_threads_http = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.cache_ram_mib = params.n_ctx_checkpoints = 0
        params.fit_params = params.warmup = params.ui = False
        params.verbosity = 1
        params.no_extra_bufts = platform.machine().lower() in {"x86_64", "amd64"}
        self._server = xllamacpp.Server(params)
        self._settings = {"max_tokens": max_tokens, "temperature": temperature, "seed": 0, "id_slot": 0}
        self._skill: str | None = None

    def ask(self, skill: str, question: str) -> str:
        same = skill == self._skill
        self._skill = None
        self._chat(skill, PLACEHOLDER, max_tokens=0, cache_prompt=same)
        reply = self._chat(skill, question, cache_prompt=True)
        self._skill = skill
        return str(reply["choices"][0]["message"].get("content") or "")

    def _chat(self, skill: str, question: str, **settings: Any) -> Any:
        messages = [{"role": "system", "content": skill}, {"role": "user", "content": question}]
        reply = self._server.handle_chat_completions({**self._settings, "messages": messages, **settings})
        if reply.get("error"):
            raise RuntimeError(f"the target gave no reply: {reply['error']}")
        return reply


def main(weights: str, max_tokens: int) -> None:
    """Requests and replies as lines of JSON on standard input and output; ends when the input does."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what llama.cpp prints must not come between the replies
    target = Target(weights, max_tokens)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(target.ask(request["skill"], request["question"])), file=replies, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
