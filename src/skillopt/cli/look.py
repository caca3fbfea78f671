"""Looking into a run: report, review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import app
from skillopt.report.text import printable


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run's folder.")]) -> None:
    """Write a run's report anew, also for one that is not finished."""
    from skillopt.errors import UserError
    from skillopt.report.html import write_report
    from skillopt.run.directory import RunDirectory

    directory = RunDirectory(run)
    if not directory.summary.is_file():
        raise UserError(f"{run}: is not a run's folder (it has no summary.json)")
    write_report(directory)
    print(directory.report)


@app.command()
def review(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    choose: Annotated[
        list[str] | None, typer.Option("--choose", metavar="ID=CHOICE", help="a, b, both or neither, such as 3-1=a.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="ID=TEXT", help="An edit of your own, such as 3-1='…'.")
    ] = None,
) -> None:
    """Decide between opposite edits; the next step tries the choice. Asks on a terminal, lists elsewhere."""
    from skillopt.report.review import review_run
    from skillopt.run.directory import RunDirectory

    ask = input if sys.stdin.isatty() and sys.stdout.isatty() else None
    review_run(RunDirectory(run), choose or [], write or [], lambda text: print(printable(text)), ask)
