"""Serve a model on this CPU with OpenAI's protocol on http://127.0.0.1:8080/v1: python examples/local_server.py

Needs `pip install '.[local]'` and `skillopt models pull qwen2.5-coder-0.5b`. The server answers every program on this
machine, one request at a time, until Ctrl-C.
"""

from __future__ import annotations

import signal
import sys

import xllamacpp

from skillopt import weights_path


def serve(name: str = "qwen2.5-coder-0.5b", port: int = 8080) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights_path(name))
    params.n_ctx, params.n_parallel, params.port = 4096, 1, port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.fit_params = params.warmup = params.ui = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(f"{name} at {server.listening_address}/v1", flush=True)
    signal.pause()


if __name__ == "__main__":
    serve(*sys.argv[1:2])
