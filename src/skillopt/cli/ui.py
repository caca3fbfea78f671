"""`skillopt ui`: the web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import app


@app.command()
def ui(
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 7860,
    outputs: Annotated[
        list[Path] | None, typer.Option(help="Folder of runs, such as outputs; may be repeated.")
    ] = None,
    configs: Annotated[list[Path] | None, typer.Option(help="Folder of configs; may be repeated.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folder that configs may name for data and skills; the working folder unless set."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name by which a proxy or tunnel reaches the page.")
    ] = None,
) -> None:
    """Open the web page: configure, launch, watch and compare runs. Set your token in SKILLOPT_UI_TOKEN."""
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
