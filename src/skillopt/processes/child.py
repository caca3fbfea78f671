"""The code inside a worker process: it reads JSON lines from standard input and answers each line with one line.

It imports only the standard library, so a worker starts quickly. The worker ends when its input ends, even in the
middle of an answer. So it cannot outlive the process that started it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Setup = TypeVar("Setup")
Request = TypeVar("Request")


def serve(
    begin: Callable[[Setup], Callable[[Request], object]],
    explain: Callable[[BaseException], object],
    at_end: Callable[[], None] = lambda: None,
) -> None:
    """Answer the lines of standard input until the input ends. `begin` gets the first line and returns the function
    that answers the later lines. If a line causes an error, `explain` turns the error into the answer. `at_end` is
    called when the input has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and ends this process afterwards
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the work must not mix with the answers
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        at_end()
        os._exit(0)

    def say(value: Callable[[], object]) -> bool:
        done = True
        try:
            text = json.dumps(value())
        except BaseException as error:  # the work may call sys.exit, too
            text, done = json.dumps(explain(error)), False
        replies.write(text.encode() + b"\n")
        replies.flush()
        return done

    threading.Thread(target=read, daemon=True).start()
    made: list[Callable[[Request], object]] = []

    def start() -> dict[str, str]:
        made.append(begin(json.loads(lines.get())))
        return {}

    if say(start):
        while True:
            say(lambda: made[0](json.loads(lines.get())))
