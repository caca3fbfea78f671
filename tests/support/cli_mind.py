"""A stand-in for a command line: it answers the prompt on standard input as the simulated world does.

`python cli_mind.py [MANNER]`; manners: colour, login, hang, limit FILE, empty, loud, where FILE.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def simulated(prompt: str, options: Any = None) -> str:
    """What the simulated optimizer replies to a prompt in which the schema is spelled out."""
    from skillopt.models.base import ChatRequest
    from skillopt.sim.model import SimOptions, SimulatedModel

    request = ChatRequest(messages=({"role": "user", "content": prompt.strip()},))
    return asyncio.run(SimulatedModel("sim:world", options or SimOptions()).chat(request)).text


def reply_to_page(page: str) -> str:
    """The simulated optimizer on what a reader of the page sees: the question's blocks, and the schema."""
    asked = page.partition("## What is asked")[2].partition("## The form of the reply")
    schema = asked[2].partition("```json\n")[2].partition("\n```")[0]
    stage = page.partition(": ")[2].partition("\n")[0]
    body = json.dumps(json.loads(schema))
    question = asked[0].rpartition("### user\n\n```text\n")[2].rpartition("\n```")[0]
    return simulated(f'{question}\n\nIt must fit this JSON schema, "{stage}":\n{body}')


def main(manner: str = "", file: str = "") -> int:
    prompt = sys.stdin.read()
    if manner == "login":
        print(
            "\x1b[33mNot signed in.\x1b[0m Please run /login and visit https://example.com/device to sign in.",
            flush=True,
        )
        time.sleep(600)
    if manner == "hang":
        time.sleep(600)
    if manner == "limit" and not Path(file).exists():
        Path(file).touch()
        print("Error: rate limit reached. Please try again in 1s.", file=sys.stderr)
        return 1
    if manner == "empty":
        return 0
    if manner == "loud":
        sys.stdout.write("x" * (10 << 20))
        return 0
    if manner == "where":
        told = {"cwd": str(Path.cwd()), "files": os.listdir(), "env": sorted(os.environ)}  # noqa: PTH208
        Path(file).write_text(json.dumps(told))
    text = simulated(prompt)
    print(f"\x1b[1m\x1b[32m{text}\x1b[0m\x1b]0;done\x07\r" if manner == "colour" else text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
