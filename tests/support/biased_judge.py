"""A judge on loopback with a bias that is planted: it reads the letter of the judge and answers by its bias alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Shown = dict[str, Any]
"""What the judge is shown, by name."""


def prefers_long(shown: Shown) -> dict[str, Any]:
    """Full points for an answer of more than 60 characters, whatever it says."""
    return {"reason": "by its length", "score": 4 if len(shown["answer"]) > 60 else 1}


def prefers_first(shown: Shown) -> dict[str, Any]:
    return {"reason": "by its place", "better": "first"}


def is_right(shown: Shown) -> dict[str, Any]:
    good = "good" in shown["answer"]
    return {"reason": "good" if good else "it is not good", "score": 4 if good else 0}


class FlipsSometimes:
    """As `is_right`, but every seventh call says the opposite."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, shown: Shown) -> dict[str, Any]:
        self.calls += 1
        said = is_right(shown)
        return said if self.calls % 7 else {**said, "score": 4 - said["score"]}


@contextlib.contextmanager
def judge_server(decide: Callable[[Shown], dict[str, Any]]) -> Iterator[tuple[str, list[Shown]]]:
    """The URL of the endpoint, and everything that it was shown."""
    seen: list[Shown] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = str(body["messages"][-1]["content"])
            shown = {k: json.loads(v) for k, _, v in (line.partition(": ") for line in text.splitlines())}
            seen.append(shown)
            message = {"role": "assistant", "content": json.dumps(decide(shown))}
            reply = {
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            }
            data = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
