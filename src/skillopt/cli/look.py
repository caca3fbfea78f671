"""Commands that look at runs: report, blame, verify, runs, diff, review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import RunArgument, app, say


@app.command()
def report(
    run: RunArgument, show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False
) -> None:
    """Write a run's report again (report.html, report.md, plots/), also for an unfinished run."""
    from skillopt.record.directory import RunDirectory
    from skillopt.view.html import write_report

    directory = RunDirectory(run)
    say(write_report(directory).verdict)
    print(directory.report)
    if show:
        typer.launch(str(directory.report.resolve()))


@app.command()
def blame(
    run: RunArgument,
    line: Annotated[int | None, typer.Option("--line", min=1, help="Show everything about one line.")] = None,
    file: Annotated[
        str, typer.Option("--file", help="Show only this file of a package, such as references/rules.md.")
    ] = "",
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="Show this version in place of the best one.")
    ] = None,
    trace: Annotated[str, typer.Option("--trace", metavar="ID", help="Print a trajectory that an edit cites.")] = "",
) -> None:
    """Say for each line of a skill which step, edit and trajectories it comes from."""
    from skillopt.errors import UserError
    from skillopt.record.directory import RunDirectory
    from skillopt.record.run import Run
    from skillopt.skill import FILE
    from skillopt.view.blame import blame_run
    from skillopt.view.blame_lines import blame_lines, line_story, lines_of
    from skillopt.view.traces import find_trace, trace_lines

    directory = RunDirectory(run)
    if trace:
        with directory.as_written():
            rollout = find_trace(Run(directory), trace)
            if rollout is None:
                raise UserError(f"{run}: has no trajectory '{trace}'; ids look like 0003-007 or gate-0003-012")
            output = trace_lines(rollout)
    else:
        lines = blame_run(directory, version)
        shown = lines_of(lines, file) if file else lines
        output = blame_lines(shown) if line is None else line_story(lines, line, file or FILE, Run(directory))
    say(*output)


@app.command()
def verify(run: RunArgument) -> None:
    """Check that each file of a run has its recorded checksum, and that the patch log rebuilds every version byte for
    byte.

    If a check fails, the exit code is 1 and the message names files to delete; `skillopt train` writes them again.
    """
    from skillopt.errors import UserError
    from skillopt.record.damage import find_damage
    from skillopt.record.directory import RunDirectory
    from skillopt.record.run import Run
    from skillopt.record.state import WAY_OUT

    directory = RunDirectory(run)
    if not directory.snapshot(0).exists() and not directory.patch_log.path.exists():
        raise UserError(f"{run}: is not a run's folder (it has no skills/skill_v0000.md and no patch_log.jsonl)")
    if damages := find_damage(directory):
        for damage in damages:
            say(f"FAIL  {damage}")
        anew = "run the same `skillopt train` command again: it writes these files again"
        print(anew if all(damage.derived for damage in damages) else WAY_OUT)
        raise typer.Exit(1)
    entries = Run(directory).finished_entries()
    versions = 1 + len({entry.version for entry in entries})
    print(f"ok  {len(entries)} entries; {versions} versions replayed, each equal to its file byte for byte")


@app.command()
def runs(
    root: Annotated[Path, typer.Argument(help="An output folder, or a benchmark's folder in it.")] = Path("outputs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """List runs with their scores, status and cost, the newest first."""
    import json
    from dataclasses import asdict

    from skillopt.errors import UserError
    from skillopt.view.run_rows import list_runs
    from skillopt.view.runs_table import runs_table

    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give the output folder of your runs")
    rows = list_runs(root)
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row) | {"path": str(row.path)}))
        return
    if not rows:
        say(f"{root}: no runs here")
        return
    print("\n".join(runs_table(rows, root)))


@app.command()
def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A run (its best skill), RUN@3 (version 3), a skill file or package.")
    ],
    b: Annotated[
        str,
        typer.Argument(
            metavar="[B]", help="The second skill. Without it, run A is compared with the initial skill of that run."
        ),
    ] = "",
) -> None:
    """Show what differs between two runs, two versions of a run, or two skills (files or packages)."""
    from skillopt.view.runs_table import diff_report

    say(*diff_report(a, b))


@app.command()
def review(
    run: RunArgument,
    choose: Annotated[
        list[str] | None,
        typer.Option("--choose", metavar="ID=CHOICE", help="Decide a conflict: a, b, both or neither, such as 3-1=a."),
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="ID=TEXT", help="Write the edit yourself, such as 3-1='…'.")
    ] = None,
) -> None:
    """Decide between edits that contradict each other; the next step tries your choice. On a terminal, the command
    asks for your choices; otherwise, it lists the conflicts."""
    from skillopt.record.directory import RunDirectory
    from skillopt.view.review_dialog import review_run

    ask = input if sys.stdin.isatty() and sys.stdout.isatty() else None
    review_run(RunDirectory(run), choose or [], write or [], say, ask)
