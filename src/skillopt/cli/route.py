"""The command `skillopt route`: shows which skill of a library an agent loads for which request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import ConfigOption, Overrides, TargetOption, app, load_config, measured, print_json, show


@app.command()
def route(
    library: Annotated[Path, typer.Argument(metavar="SKILLS", help="Folder of Agent Skills packages.")],
    config: ConfigOption,
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "val",
    target_model: TargetOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="The confusion matrix as JSON.")] = False,
) -> None:
    """Show which skill of a library an agent loads for which request. The config's tasks are requests whose answer is
    a skill's name, or none."""
    from skillopt.measure.routing import route as run_routing
    from skillopt.view.measured_tables import routing_lines, routing_table

    loaded = load_config(config, overrides, target_model)
    result = measured(loaded, lambda heard: run_routing(loaded, library, split=split, listeners=[heard]), quiet=as_json)
    if as_json:
        return print_json(result.model_copy(update={"path": None}))
    return show(result.verdict, *routing_table(result.confusion), *routing_lines(result), f"Written: {result.path}")
