"""`skillopt judge`: how far the judge of a config can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import ConfigOption, Overrides, app, load_config, show

judge_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compare a judge with people's grades.")
app.add_typer(judge_app, name="judge", rich_help_panel="Measure skills")


@judge_app.command()
def calibrate(
    config: ConfigOption,
    graded: Annotated[
        Path, typer.Option("--graded", help="Answers with grades: question, output, grade (.jsonl, .json, .csv).")
    ],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Output file; unless set, judge_calibration.json next to the config.")
    ] = None,
    top: Annotated[float, typer.Option("--top", min=0.01, help="The best grade that a person gives.")] = 1.0,
    repeats: Annotated[int, typer.Option("--repeats", min=2, max=20, help="Judgements of each answer.")] = 3,
) -> None:
    """Judge answers that people have graded: agreement, biases and noise. A training reads the record."""
    import asyncio

    from skillopt.config.tree import CALIBRATION
    from skillopt.errors import UserError
    from skillopt.measure.calibrate import calibrate as run_calibration
    from skillopt.view.calibration import calibration_lines

    target = out or config.parent / CALIBRATION
    if not target.parent.is_dir():
        raise UserError(f"--out: {target.parent} is not a folder; create it, or name another file")
    loaded = load_config(config, [*(overrides or []), "models.judge_calibration="])
    record = asyncio.run(run_calibration(loaded, graded, target, top=top, repeats=repeats))
    show(record.verdict, *calibration_lines(record), f"Written: {target}")
