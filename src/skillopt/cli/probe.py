"""The command `skillopt probe`, for use before a training."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from skillopt.cli.app import ConfigOption, Overrides, TargetOption, app, load_config, measured, print_json, show


@app.command(rich_help_panel="Begin")
def probe(
    config: ConfigOption,
    overrides: Overrides = None,
    target_model: TargetOption = "",
    items: Annotated[int, typer.Option("--items", min=1, help="How many training tasks to try.")] = 12,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples of each task.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print probe.json.")] = False,
) -> None:
    """Ask a dozen training tasks, to see whether there is anything to learn for this target."""
    from skillopt.measure.probe import plan_probe
    from skillopt.measure.probe import probe as run_probe
    from skillopt.tasks import using_env
    from skillopt.training.initial import initial_of
    from skillopt.view.probe_lines import plan_line, probe_lines

    loaded = load_config(config, overrides, target_model)
    skill = initial_of(loaded)
    with using_env(loaded) as env:
        print(plan_line(plan_probe(loaded, env, skill, items=items, samples=samples)), file=sys.stderr, flush=True)
    result = measured(
        loaded, lambda heard: run_probe(loaded, skill, items=items, samples=samples, listeners=[heard]), quiet=as_json
    )
    if as_json:
        return print_json(result)
    return show(*probe_lines(result), f"Written: {result.path}")
