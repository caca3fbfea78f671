"""`skillopt ablate`: what each part of a trained skill is worth."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from skillopt.cli.app import Overrides, RunArgument, app, fetch_weights
from skillopt.report.text import printable


@app.command()
def ablate(
    run: RunArgument,
    overrides: Overrides = None,
    by: Annotated[Literal["rule", "section", "step"], typer.Option("--by", help="What is left out.")] = "rule",
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Samples of each item; 1 or, where noisy, 3.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option("--max-calls", min=1, help="Stop after this many calls.")] = None,
) -> None:
    """Measure what each rule of the best skill is worth on the selection split. Reports, and removes nothing."""
    import asyncio

    from skillopt.config import Config
    from skillopt.errors import UserError
    from skillopt.measure.ablate import ablate as run_ablation
    from skillopt.report.ablation_table import ablation_lines, ablation_table
    from skillopt.report.console import open_console, watching
    from skillopt.run.directory import RunDirectory

    directory = RunDirectory(run)
    if not directory.config_yaml.is_file() or not directory.best_skill.is_file():
        raise UserError(f"{run}: is not a run's folder (it has no config.yaml and best_skill.md)")
    limit = [f"budget.max_calls={max_calls}"] * (max_calls is not None)
    config = Config.load(directory.config_yaml, [*(overrides or []), *limit])
    own = Config.load(directory.config_yaml)
    if own.models.target_model.startswith("agent:"):  # a function was passed in; a command finds it by its file
        own = own.with_values({"env.agent": config.env.agent})
    if config.identity() != own.identity():
        raise UserError("ablate: only budget, hardware and places may differ from the run's own config")
    fetch_weights(config)
    console = open_console()
    with watching(console) as listener:
        result = asyncio.run(run_ablation(directory, config, by=by, repeats=repeats, listeners=[listener]))
    console.print()
    console.width = max(console.width, 160)
    console.print("\n".join(ablation_table(result)))
    for line in [*ablation_lines(result), f"Written: {result['path']}"]:
        console.print(printable(line))
