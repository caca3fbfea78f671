"""The MCP server, built on the official SDK. It serves every tool, and an error of SkillOpt becomes a message that an
agent can read."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skillopt.errors import SkillOptError, UserError
from skillopt.keys import redact
from skillopt.skill import PatchLogError
from skillopt.version import __version__
from skillopt_mcp.tools import ALL, Tools

INSTRUCTIONS = """SkillOpt trains a skill (a Markdown document of instructions) for a frozen agent, and proves by
held-out tasks that it got better. Plan first, then start_run. With the change models.optimizer_model=handoff you are
the optimizer: repeat watch_run, read_letter and answer_letter until the status is finished. Answer a letter from that
letter alone; never look at the test items, the data or the run's files for it."""


def make_server(root: Path) -> Any:
    """Make an MCPServer with all tools, for one folder."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise UserError("the MCP server needs the package mcp: pip install 'skillopt[mcp]'") from None
    server = MCPServer("skillopt", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = Tools(root)
    for name in ALL:
        server.add_tool(_told(getattr(tools, name), tools, ToolError), name=name)
    return server


def _told(tool: Callable[..., Any], tools: Tools, error_type: type[Exception]) -> Callable[..., Any]:
    """Wrap a tool so that it does not block the event loop and raises errors that an agent can read."""

    @functools.wraps(tool)
    async def call(*arguments: Any, **named: Any) -> Any:
        try:
            with tools.as_written(named.get("run")):
                if inspect.iscoroutinefunction(tool):
                    return await tool(*arguments, **named)
                return await asyncio.to_thread(tool, *arguments, **named)
        except (SkillOptError, PatchLogError, OSError) as error:
            raise error_type(redact(str(error))) from None

    return call


def serve(root: Path) -> None:
    """Serve on standard input and output until the client disconnects. Runs that were started continue after that."""
    server = make_server(root)
    os.chdir(root)  # relative paths in configs begin there
    server.run("stdio")
