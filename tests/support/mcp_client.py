"""A client of the MCP server, as an agent has one."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from skillopt_webui.alive import holder

Call = Callable[..., Awaitable[Any]]


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[Any, Call]]:
    """A client of a real server process; `call` gives a tool's value, and raises what the tool refused."""
    from mcp import Client, StdioServerParameters

    arguments = ["-m", "skillopt.cli", "mcp", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})
    async with Client(server) as client:

        async def call(name: str, **given: Any) -> Any:
            result = await client.call_tool(name, given)
            text = "\n".join(part.text for part in result.content)
            if result.is_error:
                raise ValueError(text)
            found = result.structured_content
            return found["result"] if found and set(found) == {"result"} else found or text

        yield client, call
    for lock in folder.glob("outputs/*/*/run.lock"):
        if pid := holder(lock.parent):
            os.kill(pid, signal.SIGKILL)
