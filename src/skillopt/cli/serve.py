"""The commands that start servers: ui (the web page), mcp (for agents), sim (the simulated world as an endpoint)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import app

sim_app = typer.Typer(
    help="Serve the simulated world: tasks, a target and an optimizer that need no key.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(sim_app, name="sim")


@app.command()
def ui(
    host: Annotated[
        str, typer.Option(help="Address to listen on; an address that other machines can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free port.")] = 7860,
    outputs: Annotated[
        list[Path] | None, typer.Option(help="Folder of runs, such as outputs; may be repeated.")
    ] = None,
    configs: Annotated[list[Path] | None, typer.Option(help="Folder of configs; may be repeated.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folder from which configs may take data and skills. Default: the working folder."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name under which a proxy or tunnel serves the web page.")
    ] = None,
) -> None:
    """Serve the web page, on which you configure, launch, watch and compare runs. The environment variable
    SKILLOPT_UI_TOKEN sets the token."""
    from skillopt_webui.app import serve, token_from_environment
    from skillopt_webui.settings import make_settings

    settings = make_settings(
        workspace=Path.cwd(),
        outputs=outputs,
        configs=configs,
        data=data,
        host=host,
        port=port,
        token=token_from_environment(),
        allowed_hosts=allow_host,
    )
    serve(settings, lambda line: print(line, flush=True))


@app.command()
def mcp(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder of your configs, tasks and runs; nothing outside of this folder is read or changed."
        ),
    ] = Path(),
) -> None:
    """Serve MCP on standard input and output, so an agent can plan, start and watch runs and answer letters."""
    from skillopt_mcp.server import serve

    serve(folder)


@sim_app.command("serve")
def sim_serve(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free port.")] = 8077,
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[option=value]...", help="Options of the simulated world; see docs/simulated_world.md."
        ),
    ] = None,
    api_key: Annotated[str, typer.Option(help="Refuse requests without this key.")] = "",
) -> None:
    """Serve the simulated world as an OpenAI-compatible endpoint on this machine."""
    import asyncio

    from skillopt.sim.model import parse_options
    from skillopt.sim.server import serve

    try:
        asyncio.run(serve(parse_options("&".join(options or [])), port, api_key))
    except KeyboardInterrupt:
        return
