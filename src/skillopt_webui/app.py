"""Serves the page on this machine, at port 7860: `python -m skillopt_webui.app`, or `skillopt ui`."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from skillopt.dotenv import load_dotenv
from skillopt.errors import UserError
from skillopt_webui.server import make_app
from skillopt_webui.settings import PageSettings, is_loopback

TOKEN_NAME = "SKILLOPT_UI_TOKEN"  # noqa: S105 - the name of a variable


def serve(settings: PageSettings, say: Callable[[str], None] = print) -> None:
    """Serve until Ctrl-C. Runs that were started from the page continue."""
    load_dotenv(Path(".env"))
    listening = _listen(settings.host, settings.port)
    settings = replace(settings, port=listening.getsockname()[1])
    for line in greeting(settings):
        say(line)
    web.run_app(make_app(settings), sock=listening, print=None, handle_signals=True, shutdown_timeout=1)


def greeting(settings: PageSettings) -> list[str]:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    lines = [f"SkillOpt: http://{host}:{settings.port}/  (Ctrl-C ends the page; runs continue)"]
    below = f", and below {settings.searched}" if settings.searched else ""
    configs = f"{', '.join(map(str, settings.configs))}{below}"
    lines.append(f"Runs: {', '.join(map(str, settings.outputs))}; configs: {configs}")
    if settings.token:
        own = settings.token == token_from_environment()
        lines.append(f"Token: the value of {TOKEN_NAME}" if own else f"Token: {settings.token}")
    if not is_loopback(settings.host):
        lines.append(
            "Others can reach this address. The connection is not encrypted: use a tunnel, or a proxy with TLS."
        )
    return lines


def _listen(host: str, port: int) -> socket.socket:
    """Open the port. `serve` prints the page's address only after that."""
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(kind, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
        return listening
    except OSError as error:
        raise UserError(
            f"--port: cannot listen on {host}:{port} ({error.strerror}); choose another port with --port"
        ) from None


def token_from_environment() -> str:
    return os.environ.get(TOKEN_NAME, "")


def main() -> None:
    from skillopt.cli import main as skillopt

    skillopt(["ui", *sys.argv[1:]])


if __name__ == "__main__":
    main()
