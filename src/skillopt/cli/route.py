"""A library's routing: route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import ConfigOption, Overrides, TargetOption, app, fetch_weights, load_config, measured, show
from skillopt.keys import redact


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
    import asyncio

    from skillopt.measure.routing import route as run_routing
    from skillopt.view.measured_tables import routing_lines, routing_table

    loaded = load_config(config, overrides, target_model)
    if as_json:
        fetch_weights(loaded, optimizer=False)
        found = asyncio.run(run_routing(loaded, library, split=split))
        print(redact(json.dumps(found.model_dump(mode="json", exclude={"path"}), indent=2)))
        return
    result = measured(loaded, lambda heard: run_routing(loaded, library, split=split, listeners=[heard]))
    show(result.verdict, *routing_table(result.confusion), *routing_lines(result), f"Written: {result.path}")
