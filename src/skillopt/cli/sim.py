"""`skillopt sim`: the simulated world."""

from __future__ import annotations

from typing import Annotated

import typer

sim_app = typer.Typer(
    help="The simulated world: tasks, target and optimizer without a key.", no_args_is_help=True, rich_markup_mode=None
)


@sim_app.command("serve")
def sim_serve(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 8077,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[option=value]...", help="Weather, see docs/simulated_world.md.")
    ] = None,
    api_key: Annotated[str, typer.Option(help="Refuse requests without this key.")] = "",
) -> None:
    """Serve the simulated world as an OpenAI-compatible endpoint on this machine."""
    import asyncio

    from skillopt.models.sim_server import serve
    from skillopt.models.simulated import parse_options

    try:
        asyncio.run(serve(parse_options("&".join(options or [])), port, api_key))
    except KeyboardInterrupt:
        return
