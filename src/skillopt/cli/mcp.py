"""`skillopt mcp`: an MCP server for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import app


@app.command()
def mcp(
    folder: Annotated[
        Path, typer.Argument(help="The folder of your configs, tasks and runs; nothing outside of it is touched.")
    ] = Path(),
) -> None:
    """Serve MCP on standard input and output: an agent plans, starts and watches runs and answers their letters."""
    from skillopt_mcp.server import serve

    serve(folder)
